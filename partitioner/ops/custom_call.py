"""Custom calls: partitioned by the sharding rule they carry, or by their target's rule (register_custom_call), else
replicated.

    lapack_spotrf_ffi  [i, j, k]  -> [i, l, m], [i]     i passes (its own xla.sdy.sharding_rule says so)
    TopK               [i, s]     -> [i, k], [i, k]     s replicated
    MoveToHost         [i, j]     -> [i, j]

Calls that state shardings (Sharding, the edges of manual regions) have their own propagation and partitioning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from partitioner.ops.elementwise import all_dimensions_pass, result_leaf_dims
from partitioner.ops.rule_text import rule_from_text
from partitioner.ops.sort import topk_rule
from partitioner.propagation.op_sharding_rule import OpShardingRule, TensorMapping
from partitioner.registry import localize, sharding_rule
from spmd.custom_call import custom_call
from spmd.errors import ShardingError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Attrs, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.registry import Registry
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext

SHARDING_RULE = "xla.sdy.sharding_rule"

#: Rules by custom_call_target, for targets that carry none in their attributes.
TARGET_RULES: Registry[str, Callable[[HloInstruction], OpShardingRule | None]] = Registry(
    "custom-call sharding rule"
)

TARGET_RULES.add("TopK", topk_rule)
for _target in ("MoveToHost", "MoveToDevice", "annotate_device_placement"):
    TARGET_RULES.add(_target, all_dimensions_pass)


@sharding_rule(Opcode.CUSTOM_CALL)
def custom_call_rule(call: HloInstruction) -> OpShardingRule | None:
    """Return the rule of a custom call. Raises ShardingError if the rule that the call carries does not fit
    its shapes.
    """
    text = call.annotations.frontend(SHARDING_RULE)
    if text is not None:
        rule = rule_from_text(text)
        _check_fits(call, rule)
        return rule
    target = call.attrs_as(CustomCallAttrs).target
    make = TARGET_RULES.get(target)
    if make is not None:
        return make(call)
    registered = custom_call(target).sharding_rule
    return _given_rule(call, registered(call)) if registered is not None else None


def _given_rule(call: HloInstruction, given: object) -> OpShardingRule:
    """Return the rule that a registered function gave, as a rule or as its text."""
    rule = rule_from_text(given) if isinstance(given, str) else given
    if not isinstance(rule, OpShardingRule):
        raise ShardingError(f"{call.name}: expected a sharding rule or its text, found {given!r}")
    _check_fits(call, rule)
    return rule


@localize(Opcode.CUSTOM_CALL)
def localize_custom_call(
    _: PartitionContext, call: HloInstruction, operands: list[HloInstruction], __: list[ArrayShape]
) -> Attrs:
    """Return the attributes of the local call. Layout constraints state the operands' shapes, so they become the local
    ones.
    """
    attrs = call.attrs_as(CustomCallAttrs)
    if attrs.operand_layout_constraints is None:
        return attrs
    constraints = tuple(
        stated.with_dims(operand.dims) if isinstance(stated, ArrayShape) else stated
        for stated, operand in zip(attrs.operand_layout_constraints, operands, strict=True)
    )
    return replace(attrs, operand_layout_constraints=constraints)


def _check_fits(call: HloInstruction, rule: OpShardingRule) -> None:
    shapes = [operand.dims for operand in call.operands] + result_leaf_dims(call)
    mappings = (*rule.operands, *rule.results)
    fits = len(shapes) == len(mappings) and all(
        _sizes(rule, mapping) == dims for mapping, dims in zip(mappings, shapes, strict=True)
    )
    if not fits:
        text = call.annotations.frontend(SHARDING_RULE) or str(rule)
        raise ShardingError(f"the sharding rule of {call.name} does not fit its shapes: {text}")


def _sizes(rule: OpShardingRule, mapping: TensorMapping) -> tuple[int, ...]:
    sizes: list[int] = []
    for parts in mapping:
        size = 1
        for factor in parts:
            size *= rule.factors[factor].size
        sizes.append(size)
    return tuple(sizes)
