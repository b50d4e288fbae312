"""Forwarding of updates to the slices and the elementwise operations that read them, without the updated array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import SliceAttrs
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.passes.algebraic.match import constant_starts
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned, replace_and_prune

#: Begin and end of a slice in each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]


@register_pass
@dataclass(frozen=True)
class UpdateForwarding(InstructionPass):
    """a = dynamic-update-slice(zeros, u, 0)
    b = dynamic-update-slice(a, v, 1)                      x = v
    x = slice(b), slice={[1:2]}                    =>      y = u
    y = slice(b), slice={[0:1]}

    Such chains come from loops that store values of each trip for another loop, when both have been unrolled. Only if
    the array is not used otherwise: else each value would exist twice.

    If updates write all of an array that elementwise operations read, for example the gradients of all layers:

    b = dynamic-update-slice(dynamic-update-slice(zeros, u, 0), v, 1)   =>   b = concatenate(u, v)

    A fusion then reads the parts, and writes no array.
    """

    name: ClassVar[str] = "update-forwarding"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.DYNAMIC_UPDATE_SLICE,)

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()

        def edit(last: HloInstruction) -> bool:
            parts = _all_parts(last)
            if parts is not None:
                joined = builder_at(last, scope).concatenate(*parts)
                replace_and_prune(last, joined, effects)
                return True
            chain = _chain_up_to(last)
            found = [_forwarded(x, chain[n:]) for n, x in _reads(chain)]
            if not found or None in found:
                return False
            for one in filter(None, found):
                # A read whose only user was a removed update is gone, too.
                if one.read.parent is not None:
                    part = one.write(builder_at(one.read, scope))
                    replace_and_prune(one.read, part, effects)
            return True

        return edit


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """A ``read`` that is a part of ``source``."""

    read: HloInstruction
    source: HloInstruction
    box: Box

    def write(self, b: Builder) -> HloInstruction:
        starts, limits = [start for start, _ in self.box], [end for _, end in self.box]
        return b.slice(self.source, starts, limits, self.read.attrs_as(SliceAttrs).strides)


@dataclass(frozen=True, slots=True)
class _Update:
    """The update ``x``, which writes ``box``."""

    x: HloInstruction
    box: Box


def _chain_up_to(last: HloInstruction) -> list[_Update]:
    """Return the chain of updates at constant positions that ends with ``last``, the last one first. Each is read only
    by slices and by the next one.
    """
    chain: list[_Update] = []
    x, reader = last, None
    while (update := _update(x)) is not None and _is_only_read_by(x, reader):
        chain.append(update)
        x, reader = x.operand(0), x
    return chain


def _all_parts(last: HloInstruction) -> tuple[list[HloInstruction], int] | None:
    """Return the updates, in the order of their positions, that ``last`` consists of, and the dimension they split.

    The result is None if there are other elements, or if ``last`` has a reader that is not elementwise.
    """
    if is_pinned(last) or not last.num_users:
        return None
    if not all(user.opcode in ELEMENTWISE_OPS for user in last.users):
        return None
    split = [
        d for d, (n, m) in enumerate(zip(last.dims, last.operand(1).dims, strict=True)) if n != m
    ]
    if len(split) != 1:
        return None
    (axis,) = split
    parts: dict[int, HloInstruction] = {}
    x, missing = last, last.dims[axis]
    while missing > 0 and (update := _update(x)) is not None:
        start, end = update.box[axis]
        others = [n for d, n in enumerate(x.operand(1).dims) if d != axis]
        if others != [n for d, n in enumerate(x.dims) if d != axis]:
            return None
        if x is not last and (is_pinned(x) or x.num_users != 1):
            return None
        parts[start] = x.operand(1)
        missing -= end - start
        x = x.operand(0)
    ordered = [parts[start] for start in sorted(parts)]
    ends = itertools.accumulate(part.dims[axis] for part in ordered)
    if missing or sorted(parts)[1:] != list(ends)[:-1]:
        return None
    return ordered, axis


def _is_only_read_by(x: HloInstruction, update: HloInstruction | None) -> bool:
    """Return whether ``x`` is read only by slices and, as the array that it changes, by ``update``."""
    if x.is_root or is_pinned(x) or (update is not None and x in update.operands[1:]):
        return False
    return all(
        user is update or (user.opcode is Opcode.SLICE and not is_pinned(user)) for user in x.users
    )


def _update(x: HloInstruction) -> _Update | None:
    if x.opcode is not Opcode.DYNAMIC_UPDATE_SLICE:
        return None
    _, new, *indices = x.operands
    starts = constant_starts(indices, x.dims, new.dims)
    if starts is None:
        return None
    return _Update(x, tuple((s, s + n) for s, n in zip(starts, new.dims, strict=True)))


def _reads(chain: Sequence[_Update]) -> Iterator[tuple[int, HloInstruction]]:
    """Yield the slices of the chain's values, each with the index of the update that it reads."""
    for n, update in enumerate(chain):
        for user in update.x.users:
            if user.opcode is Opcode.SLICE:
                yield n, user


def _forwarded(read: HloInstruction, chain: Sequence[_Update]) -> _Forwarded | None:
    """Return the source of all elements of ``read``, which reads the first of ``chain``; None if there are several."""
    attrs = read.attrs_as(SliceAttrs)
    box: Box = tuple(zip(attrs.starts, attrs.limits, strict=True))
    if not read.array_shape.num_elements:
        return None
    for update in chain:
        pairs = list(zip(box, update.box, strict=True))
        if any(end <= low or high <= start for (start, end), (low, high) in pairs):
            continue
        if all(low <= start and end <= high for (start, end), (low, high) in pairs):
            inside = tuple((start - low, end - low) for (start, end), (low, _) in pairs)
            return _Forwarded(read, update.x.operand(1), inside)
        return None
    return _Forwarded(read, chain[-1].x.operand(0), box)
