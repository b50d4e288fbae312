"""Generic partitioner of one op by its sharding rule: plan, reshard operands, mask padding, clone on local shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partitioner.annotations.reader import without_shardings
from partitioner.devices.axes import Axes
from partitioner.partition.candidates import OpPlan, OpProblem, best_plan
from partitioner.partition.certain_uses import demanded_states
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, RuleBuilder
from partitioner.registry import LOCALIZERS, rule_of
from spmd.analysis.cost import op_cost
from spmd.hlo import Attrs, HloInstruction, Opcode
from spmd.literal import Literal
from spmd.ops.attrs import ConstantAttrs
from spmd.ops.reduction import identity_value
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape, as_array, leaves


def partition_generic(
    context: PartitionContext, instruction: HloInstruction
) -> tuple[ShardedValue, ...]:
    """Partition by the op's rule. Without a rule, replicate the operands and compute the entire op on every device."""
    values = [context.value(operand) for operand in instruction.operands]
    if _is_unsharded(context, instruction, values):
        states = [ShardState.replicated(as_array(s).rank) for _, s in leaves(instruction.shape)]
        return _clone(context, instruction, states, [value.hlo for value in values])
    rule = rule_for(instruction)
    plan = best_plan(problem_of(context, instruction, rule))
    return emit_local(context, instruction, plan, local_operands(context, instruction, rule, plan))


def _is_unsharded(
    context: PartitionContext, instruction: HloInstruction, values: Sequence[ShardedValue]
) -> bool:
    """Return whether every device has all of the operands and wants all of the results: no plan splits anything."""
    if any(value.state.partial or any(value.state.dims) for value in values):
        return False
    count = sum(1 for _ in leaves(instruction.shape))
    return not any(any(context.wanted(instruction, leaf).dims) for leaf in range(count))


def local_operands(
    context: PartitionContext, instruction: HloInstruction, rule: OpShardingRule, plan: OpPlan
) -> list[HloInstruction]:
    """Return the operands in the plan's states, safe to reduce."""
    values = [
        context.reshard(context.value(operand), state)
        for operand, state in zip(instruction.operands, plan.operands, strict=True)
    ]
    return [_prepare(context, rule, plan, i, value) for i, value in enumerate(values)]


def rule_for(instruction: HloInstruction) -> OpShardingRule:
    """Return the op's rule, or else the rule that splits nothing."""
    return rule_of(instruction) or replicating_rule(instruction)


def replicating_rule(instruction: HloInstruction) -> OpShardingRule:
    """Return a rule without factors to split: the fallback that is always correct."""
    return RuleBuilder.for_instruction(instruction).build()


def problem_of(
    context: PartitionContext, instruction: HloInstruction, rule: OpShardingRule
) -> OpProblem:
    values = [context.value(operand) for operand in instruction.operands]
    shapes = tuple(as_array(shape).without_layout() for _, shape in leaves(instruction.shape))
    cost = op_cost(instruction)
    work = max(
        cost.flops + cost.transcendentals, float(sum(shape.num_elements for shape in shapes))
    )
    return OpProblem(
        context.axes,
        rule,
        tuple(value.shape for value in values),
        lambda i, state: context.reshard_cost(values[i], state),
        tuple(value.state for value in values),
        shapes,
        tuple(context.wanted(instruction, leaf) for leaf in range(len(shapes))),
        tuple(demanded_states(context, instruction, leaf) for leaf in range(len(shapes))),
        context.manual_axes(instruction),
        work,
    )


def emit_local(
    context: PartitionContext,
    instruction: HloInstruction,
    plan: OpPlan,
    operands: list[HloInstruction],
    attrs: Attrs | None = None,
) -> tuple[ShardedValue, ...]:
    """Clone the op over local operands. Returns one value per result leaf, in the plan's states.

    ``attrs``: the clone's attributes if the op's localizer cannot compute them.
    """
    return _clone(context, instruction, plan.results, operands, attrs)


def _clone(
    context: PartitionContext,
    instruction: HloInstruction,
    states: Sequence[ShardState],
    operands: list[HloInstruction],
    attrs: Attrs | None = None,
) -> tuple[ShardedValue, ...]:
    globals_ = [as_array(shape).without_layout() for _, shape in leaves(instruction.shape)]
    locals_ = [
        state.local_shape(shape, context.axes)
        for shape, state in zip(globals_, states, strict=True)
    ]
    localizer = LOCALIZERS.get(instruction.opcode)
    if attrs is None:
        attrs = instruction.attrs
        if localizer is not None:
            attrs = localizer(context, instruction, operands, locals_)
    shape: Shape = (
        TupleShape(tuple(locals_)) if isinstance(instruction.shape, TupleShape) else locals_[0]
    )
    clone = context.target.create(
        instruction.opcode,
        _marked_as(shape, instruction.shape),
        operands,
        attrs,
        name=instruction.name,
        called_computations=[context.copy_callee(c) for c in instruction.called_computations],
        annotations=without_shardings(instruction.annotations),
    )
    if not isinstance(shape, TupleShape):
        return (ShardedValue(clone, states[0], globals_[0]),)
    return tuple(
        ShardedValue(context.builder.get_tuple_element(clone, i), state, global_shape)
        for i, (state, global_shape) in enumerate(zip(states, globals_, strict=True))
    )


def _marked_as(local: Shape, global_shape: Shape) -> Shape:
    """Return ``local`` with the dynamic dimensions of ``global_shape``: for a reshape only the shape marks them."""
    if (
        isinstance(local, ArrayShape)
        and isinstance(global_shape, ArrayShape)
        and local.dims == global_shape.dims
    ):
        return replace(local, dynamic=global_shape.dynamic)
    return local


def _prepare(
    context: PartitionContext,
    rule: OpShardingRule,
    plan: OpPlan,
    position: int,
    value: ShardedValue,
) -> HloInstruction:
    """Make an operand safe to reduce: mask its padding, and keep values that count once on one device only."""
    mapping = rule.operands[position]
    split: list[int] = []
    uneven: list[int] = []
    kind = None
    for index, (factor, axes) in enumerate(zip(rule.factors, plan.assignment, strict=True)):
        if factor.kind is not FactorKind.REDUCTION or not axes:
            continue
        split.extend(axes)
        kind = factor.reduction
        dim = rule.factor_dim(mapping, index)
        if dim is not None:
            uneven.append(dim)
    if kind is None:
        return value.hlo
    identity = identity_value(kind, value.shape.element_type)
    if position in rule.identity_operands:
        return _only_first(context, value, tuple(sorted(split)), identity)
    return context.mask_padding(value, tuple(uneven), identity)


def _only_first(
    context: PartitionContext, value: ShardedValue, axes: Axes, identity: object
) -> HloInstruction:
    """Return ``value`` on the first device along ``axes``, and the reduction's identity on the others."""
    b = context.builder
    literal = Literal.of(ArrayShape(value.shape.element_type, ()), identity)
    if _is_splat_of(value.hlo, literal):
        return value.hlo
    dims = value.hlo.dims
    first = b.compare(context.coordinate(axes), b.scalar(PrimitiveType.S32, 0), "EQ")
    neutral = b.broadcast_scalar(b.constant(literal), dims)
    return b.select(b.broadcast_scalar(first, dims), value.hlo, neutral)


def _is_splat_of(instruction: HloInstruction, literal: Literal) -> bool:
    """Return whether this is a (broadcast) scalar constant equal to ``literal``: it may count any number of times."""
    while instruction.opcode is Opcode.BROADCAST:
        instruction = instruction.operand(0)
    return (
        instruction.opcode is Opcode.CONSTANT
        and instruction.attrs_as(ConstantAttrs).literal == literal
    )


def reshard_to(context: PartitionContext, value: ShardedValue, wanted: ShardState) -> ShardedValue:
    """Resolve a partial value: reduce it directly into the state that its users want."""
    return context.reshard(value, wanted) if value.state.partial else value
