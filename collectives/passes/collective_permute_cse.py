"""Send once what is sent in several forms."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import ClassVar, Final

from collectives.passes.collective_cse import CollectiveCse, RetainedCollectives
from collectives.passes.collective_permute_matching import Permute, match_permute
from collectives.passes.rearrangements import PLACING, bits_of, line_of, one_way, undoing_order
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import SliceAttrs
from spmd.passes.interface import register_pass

#: Ops that map zeros to zeros: devices that are not a target receive zeros.
_REARRANGING: Final = (*PLACING, Opcode.CONVERT, Opcode.REVERSE, Opcode.SLICE)


@register_pass
@dataclass(frozen=True)
class CollectivePermuteCse(CollectiveCse[Permute]):
    """Make a collective-permute of another one along the same ways, where it sends a form or a part of the same value.

        r = f32[8,4] collective-permute(x), {{0,1},{1,2}}           r = f32[8,4] collective-permute(x), {{0,1},{1,2}}
        c = f32[2,4] slice(x), [0:2]                          =>
        s = f32[2,4] collective-permute(c), {{0,1},{1,2}}           s = f32[2,4] slice(r), [0:2]

    Of two slices of one value, one that holds the other will do. The order of pairs, and channels, mean nothing.
    """

    name: ClassVar[str] = "collective-permute-cse"

    def match(self, x: HloInstruction) -> Permute | None:
        return match_permute(x)

    def rank(self, collective: Permute) -> tuple[int, ...]:
        """Return a key that puts values with reversible ops first, then larger values."""
        line = line_of(collective.operand, _REARRANGING)
        return one_way(line), -collective.operand.array_shape.num_elements

    def empty_state(self) -> _Sent:
        return _Sent()


def _ways(permute: Permute) -> Hashable:
    return permute.ways, permute.mode


@dataclass(frozen=True)
class _Sent(RetainedCollectives[Permute]):
    """Permutes seen so far, by their pairs and the value that they send: all of its bits, or slices of it."""

    sent: dict[tuple[Hashable, HloInstruction], Permute] = field(default_factory=dict)
    slices: dict[tuple[Hashable, HloInstruction], list[Permute]] = field(default_factory=dict)

    def add(self, collective: Permute) -> None:
        ways, operand = _ways(collective), collective.operand
        for value in bits_of(line_of(operand, _REARRANGING)):
            self.sent[ways, value] = collective
        if operand.opcode is Opcode.SLICE:
            self.slices.setdefault((ways, operand.operand(0)), []).append(collective)

    def derive(self, collective: Permute, b: Builder) -> HloInstruction | None:
        ways, line = _ways(collective), line_of(collective.operand, _REARRANGING)
        for i, value in enumerate(line):
            if (ways, value) in self.sent:
                return _formed(b, _received(b, self.sent[ways, value], value), line[:i])
            for larger in self.slices.get((ways, line[i + 1]), ()) if i + 1 < len(line) else ():
                inner = _part(value, larger.operand)
                if inner is not None:
                    cut = b.slice(larger.instruction, inner.starts, inner.limits, inner.strides)
                    return _formed(b, cut, line[:i])
        return None


def _received(b: Builder, permute: Permute, value: HloInstruction) -> HloInstruction:
    """Return the value that a permute of ``value`` would receive; the operand of ``permute`` has the bits of
    ``value``."""
    line = line_of(permute.operand, _REARRANGING)
    received = permute.instruction
    for op in line[: line.index(value)]:
        if op.opcode is Opcode.TRANSPOSE:
            received = b.transpose(received, undoing_order(op))
        elif op.opcode is Opcode.RESHAPE:
            received = b.reshape(received, op.operand(0).dims)
    return received


def _formed(b: Builder, x: HloInstruction, ops: list[HloInstruction]) -> HloInstruction:
    """Apply ``ops`` to ``x``, from the last to the first."""
    for op in reversed(ops):
        x = b.create(op.opcode, (x,), op.attrs, shape=op.array_shape.without_layout())
    return x


def _part(small: HloInstruction, large: HloInstruction) -> SliceAttrs | None:
    """Return the position of the slice ``small`` within the slice ``large`` of the same value; None if it is not
    inside."""
    if small.opcode is not Opcode.SLICE:
        return None
    inner, outer = small.attrs_as(SliceAttrs), large.attrs_as(SliceAttrs)
    starts, limits, strides = [], [], []
    for d, n in enumerate(small.dims):
        offset, step = inner.starts[d] - outer.starts[d], outer.strides[d]
        stride = inner.strides[d]
        if (n > 1 and stride % step) or offset < 0 or offset % step or not n:
            return None
        start, every = offset // step, max(stride // step, 1)
        last = start + (n - 1) * every
        if last >= large.dims[d]:
            return None
        starts.append(start)
        limits.append(last + 1)
        strides.append(every)
    return SliceAttrs(tuple(starts), tuple(limits), tuple(strides))
