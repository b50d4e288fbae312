"""Compute equal values once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.analysis.structure import StructuralKeys
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs
from spmd.ops.checks import plain
from spmd.ops.custom_call import is_uninitialized
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import sharding_annotation

#: Opcodes that are not merged: parameters are distinct inputs, and control flow has a state of its own. Nor are two
#: arrays merged that are overwritten.
_DISTINCT = (Opcode.PARAMETER, Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL, Opcode.OPT_BARRIER)


@register_pass
@dataclass(frozen=True)
class CommonSubexpressionElimination(FueledPass):
    """Replace an instruction by an earlier one with the same operation, operands, callees and sharding.

    It is one traversal in post-order with a hash table: linear. Callees are equal if they are the same program.
    """

    name: ClassVar[str] = "common-subexpression-elimination"

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        effects, structure = SideEffects(), StructuralKeys()
        changed = False
        for computation in module.computations_post_order():
            changed |= _merge_in(computation, effects, structure, fuel)
        return changed


def _merge_in(
    computation: HloComputation, effects: SideEffects, structure: StructuralKeys, fuel: Fuel
) -> bool:
    first: dict[Hashable, HloInstruction] = {}
    changed = False
    for x in computation.post_order():
        if not is_mergeable(x, effects):
            continue
        earlier = first.setdefault(value_key(x, [id(y) for y in x.operands], structure), x)
        if earlier is not x:
            if fuel.is_spent:
                return changed
            fuel.burn()
            computation.replace(x, earlier)
            changed = True
    return changed


def is_mergeable(x: HloInstruction, effects: SideEffects) -> bool:
    """Return whether one instruction may replace all instructions with the same key."""
    is_distinct = x.opcode in _DISTINCT or is_uninitialized(x)
    return not (is_distinct or x.has_control_edges or effects.of(x))


def value_key(x: HloInstruction, operands: list[int], structure: StructuralKeys) -> Hashable:
    """Return a key that is equal for equal values. ``operands``: the value number of each operand."""
    if definition(x.opcode).commutative:
        operands = sorted(operands)
    return (
        x.opcode,
        plain(x.shape),
        _attrs_key(x.attrs),
        tuple(operands),
        tuple(structure.key(callee) for callee in x.called_computations),
        sharding_annotation(x),
        _call_key(x),
    )


def _call_key(x: HloInstruction) -> Hashable:
    """Return what a custom call's target reads besides its operands: options (``backend_config``), directions,
    rules."""
    if x.opcode is not Opcode.CUSTOM_CALL:
        return None
    return x.annotations.backend_config, x.annotations.frontend_attributes


def _attrs_key(attrs: Attrs) -> Hashable:
    """Return the attributes without the channel id: equal collectives have different ids, and only the presence of one
    means something.
    """
    if (
        isinstance(attrs, (CollectiveAttrs, CollectivePermuteAttrs))
        and attrs.channel_id is not None
    ):
        return replace(attrs, channel_id=0)
    return attrs
