"""Collective-permutes that are none, that become one, or that move less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias

import numpy as np

from collectives.passes.collective_permute_matching import (
    Permute,
    devices_among,
    is_target,
    match_permute,
    permute_like,
    selected,
)
from collectives.passes.device_scalars import values_by_device
from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.passes.algebraic.match import splat, used_once
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.shape import ArrayShape
from spmd.source_target_pairs import Pair

#: Elementwise operations that make zeros of zeros (+0 of +0).
_KEEP_ZEROS: Final = (
    Opcode.ADD,
    Opcode.SUBTRACT,
    Opcode.MULTIPLY,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.AND,
    Opcode.OR,
    Opcode.XOR,
    Opcode.CONVERT,
    Opcode.COPY,
    Opcode.ABS,
)

#: Ops whose result is equal on all devices if their operand is.
_PLACING: Final = (
    Opcode.BROADCAST,
    Opcode.RESHAPE,
    Opcode.TRANSPOSE,
    Opcode.SLICE,
    Opcode.CONVERT,
)


@register_pass
@dataclass(frozen=True)
class CollectivePermuteSimplifier(Simplifier):
    """Replace collective-permutes by less communication.

    no pairs                                 zeros
    every device sends to itself             the operand; if only some do, zeros on the others
    permute(constant)                        the constant; zeros on devices that are no target
    permute(permute(x))                      permute(x) along both, if the inner one has no other user
    permute(broadcast(x))                    broadcast(permute(x)); so for conversions to a larger type
    f(permute(x), permute(y)), equal pairs   permute(f(x, y)), if f is elementwise, nothing else reads them and no
                                             more is sent; f must map zeros to zeros unless all devices are targets
    """

    name: ClassVar[str] = "collective-permute-simplifier"

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)

        def simpler(x: HloInstruction) -> HloInstruction | None:
            if x.opcode is not Opcode.COLLECTIVE_PERMUTE:
                return _computed_before(x, scope)
            return _simpler(x, builder_at(x, scope))

        return simpler


def _simpler(x: HloInstruction, b: Builder) -> HloInstruction | None:
    permute = match_permute(x)
    found = (rule(permute, b) for rule in _RULES) if permute is not None else ()
    return next((value for value in found if value is not None), None)


def _sent(
    b: Builder, old: Permute, x: HloInstruction, pairs: Sequence[Pair] | None = None
) -> HloInstruction:
    """Send ``x`` as ``old`` does, or along ``pairs``, simplified if possible."""
    sent = permute_like(b, old, x, pairs)
    simpler = _simpler(sent, b)
    if simpler is None:
        return sent
    b.computation.remove(sent)
    return simpler


_Rule: TypeAlias = Callable[[Permute, Builder], HloInstruction | None]


def _sent_nowhere(permute: Permute, b: Builder) -> HloInstruction | None:
    """Return zeros for a permute without pairs, or of zeros."""
    if permute.pairs and not _is_zero(permute.operand):
        return None
    return b.full(permute.operand.array_shape.without_layout(), 0)


def _is_zero(x: HloInstruction) -> bool:
    value = splat(x)
    return value is not None and not any(np.asarray(value).tobytes())


def _known_already(permute: Permute, b: Builder) -> HloInstruction | None:
    """Return the received value if every receiver holds it already: it comes from itself, or is equal everywhere."""
    if not (permute.stays or _is_same_everywhere(permute.operand)):
        return None
    if permute.reaches_all:
        return permute.operand
    zeros = b.full(permute.operand.array_shape.without_layout(), 0)
    return selected(b, is_target(b, permute, permute.pairs), permute.operand, zeros)


def _is_same_everywhere(x: HloInstruction) -> bool:
    while x.opcode in _PLACING:
        x = x.operand(0)
    return x.opcode in (Opcode.CONSTANT, Opcode.IOTA)


def _both_ways(permute: Permute, b: Builder) -> HloInstruction | None:
    first = match_permute(permute.operand)
    if first is None or first.mode is not permute.mode or not used_once(permute.operand):
        return None
    halfway = {target: source for source, target in first.pairs}
    pairs = [(halfway[source], t) for source, t in permute.pairs if source in halfway]
    return _sent(b, permute, first.operand, sorted(pairs))


def _smaller_source(permute: Permute, b: Builder) -> HloInstruction | None:
    """Permute the operand's source instead if it is smaller, then broadcast or convert."""
    made = permute.operand
    if made.opcode not in (Opcode.BROADCAST, Opcode.CONVERT):
        return None
    source = made.operand(0)
    if source.shape.byte_size >= made.shape.byte_size:
        return None
    return b.create(
        made.opcode,
        (_sent(b, permute, source),),
        made.attrs,
        shape=made.array_shape.without_layout(),
    )


def _uniform_select(permute: Permute, b: Builder) -> HloInstruction | None:
    """If the operand selects by device and all senders select the same side, send that side."""
    choice = permute.operand
    if choice.opcode is not Opcode.SELECT:
        return None
    scalar = choice.operand(0)
    while scalar.opcode in (Opcode.BROADCAST, Opcode.RESHAPE):
        scalar = scalar.operand(0)
    flags = values_by_device(scalar)
    if flags is None:
        return None
    senders = devices_among(permute, {source for source, _ in permute.pairs})
    chosen = {bool(flag) for flag, sends in zip(flags, senders, strict=True) if sends}
    return _sent(b, permute, choice.operand(1 if chosen.pop() else 2)) if len(chosen) == 1 else None


_RULES: Final[tuple[_Rule, ...]] = (
    _sent_nowhere,
    _known_already,
    _both_ways,
    _smaller_source,
    _uniform_select,
)


def _computed_before(x: HloInstruction, scope: ModuleScope) -> HloInstruction | None:
    """Move an elementwise operation on equal permutes before them: the senders compute it."""
    if not definition(x.opcode).elementwise or not isinstance(x.shape, ArrayShape):
        return None
    permutes = [match_permute(operand) for operand in x.operands]
    known = [permute for permute in permutes if permute is not None]
    if not known or len(known) < len(permutes) or x.called_computations:
        return None
    first, operands = known[0], dict.fromkeys(x.operands)
    if not all(used_once(y) and y.dims == x.dims for y in operands):
        return None
    if not all(first.agrees_with(permute) for permute in known[1:]):
        return None
    if not (first.reaches_all or x.opcode in _KEEP_ZEROS):
        return None
    fewer = x.shape.byte_size < sum(y.shape.byte_size for y in operands)
    if not fewer:
        return None
    b = builder_at(x, scope)
    sources = [permute.operand for permute in known]
    result = b.create(x.opcode, sources, x.attrs, shape=x.array_shape.without_layout())
    return _sent(b, first, result)
