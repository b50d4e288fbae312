"""Collective-permutes that are none, or that become one."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from collectives.passes.collective_permute_matching import Permute, match_permute
from collectives.passes.device_scalars import device_count, flag_by_device
from spmd.builder import Builder, ModuleScope
from spmd.device import CollectiveGroupMode
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.passes.algebraic.match import splat, used_once
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.source_target_pairs import ListedPairs

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
    """

    name: ClassVar[str] = "collective-permute-simplifier"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.COLLECTIVE_PERMUTE,)

    def simplify(self, module: HloModule) -> Simplify:
        scope = ModuleScope(module)
        return lambda x: _simpler(x, builder_at(x, scope))


def _simpler(x: HloInstruction, b: Builder) -> HloInstruction | None:
    permute = match_permute(x)
    if permute is None:
        return None
    if not permute.pairs or _is_zero(permute.operand):
        return b.full(permute.operand.array_shape.without_layout(), 0)
    if permute.stays or _is_same_everywhere(permute.operand):
        return _operand_or_zeros(permute, b)
    return _both_ways(permute, b)


def _is_zero(x: HloInstruction) -> bool:
    value = splat(x)
    return value is not None and not any(np.asarray(value).tobytes())


def _is_same_everywhere(x: HloInstruction) -> bool:
    while x.opcode in _PLACING:
        x = x.operand(0)
    return x.opcode in (Opcode.CONSTANT, Opcode.IOTA)


def _operand_or_zeros(permute: Permute, b: Builder) -> HloInstruction:
    """Return the operand, which every target holds already, and zeros on devices that are no target."""
    operand = permute.operand
    if permute.reaches_all:
        return operand
    zeros = b.full(operand.array_shape.without_layout(), 0)
    return b.select(b.broadcast_scalar(_is_target(permute, b), operand.dims), operand, zeros)


def _is_target(permute: Permute, b: Builder) -> HloInstruction:
    """Return pred[]: whether the device is a target."""
    module, targets = b.scope.module, {target for _, target in permute.pairs}
    partitions = module.num_partitions
    by_partition = permute.mode is CollectiveGroupMode.CROSS_PARTITION
    return flag_by_device(
        b,
        [
            (device % partitions if by_partition else device // partitions) in targets
            for device in range(device_count(module))
        ],
    )


def _both_ways(permute: Permute, b: Builder) -> HloInstruction | None:
    """Return the permute of a permute's operand along both ways, simplified if possible."""
    first = match_permute(permute.operand)
    if first is None or first.mode is not permute.mode or not used_once(permute.operand):
        return None
    halfway = {target: source for source, target in first.pairs}
    pairs = sorted((halfway[source], t) for source, t in permute.pairs if source in halfway)
    attrs = permute.instruction.attrs_as(CollectivePermuteAttrs)
    attrs = replace(attrs, source_target_pairs=ListedPairs(tuple(pairs)))
    sent = b.create(Opcode.COLLECTIVE_PERMUTE, (first.operand,), attrs, shape=first.operand.shape)
    sent.annotations = permute.instruction.annotations
    simpler = _simpler(sent, b)
    if simpler is None:
        return sent
    b.computation.remove(sent)
    return simpler
