"""Effects that an annotation places on one device: callbacks to the host, infeed and outfeed (``{maximal device=0}``).

    t = () custom-call(x), custom_call_has_side_effect=true, sharding={maximal device=0}

becomes, on every device, a conditional on partition-id: the annotated device runs the call on replicated operands, the
others make zeros. A collective-broadcast sends array results to all devices. An instruction without an effect is
computed by every device instead.
"""

from __future__ import annotations

from partitioner.annotations.reader import SDY_SHARDING, AnnotationReader, without_shardings
from partitioner.devices.axis_precedence import single_shardings
from partitioner.ops.tuple import unpack
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.unsharded_ops import replicated_operands, replicated_states
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.device import ReplicaGroups
from spmd.errors import UnsupportedError
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.host_callback import PARTITIONED_TARGETS, is_callback
from spmd.ops.attrs import CollectiveAttrs
from spmd.ops.custom_call import custom_call_target
from spmd.shape import ArrayShape, PrimitiveType, Shape, TokenShape, TupleShape
from spmd.sharding import HloSharding, ShardingKind

#: Host transfers in two halves. A conditional would separate the halves.
_HALVES = frozenset({Opcode.SEND, Opcode.SEND_DONE, Opcode.RECV, Opcode.RECV_DONE})
_EFFECTS = _HALVES | {Opcode.CUSTOM_CALL, Opcode.INFEED, Opcode.OUTFEED}


def effect_device(reader: AnnotationReader, instruction: HloInstruction) -> int | None:
    """Return the only device that runs an instruction's effect; None if all run it or if it has no effect."""
    if instruction.opcode not in _EFFECTS or custom_call_target(instruction) in PARTITIONED_TARGETS:
        return None
    device = _annotated_device(reader, instruction)
    # A Python function is called once even if it has no side effect.
    if device is None or not (SideEffects().of(instruction) or is_callback(instruction)):
        return None
    if instruction.opcode in _HALVES:
        raise UnsupportedError(
            f"{instruction.name}: {instruction.opcode.value} on one device of several is not supported"
        )
    return device


def _annotated_device(reader: AnnotationReader, instruction: HloInstruction) -> int | None:
    if instruction.annotations.frontend(SDY_SHARDING) is not None:
        found = {reader.on_one_device(s) for s in reader.shardy_shardings(instruction)}
    else:
        found = {
            s.device if s.kind is ShardingKind.MAXIMAL else None
            for s in single_shardings(instruction.sharding)
        }
    return found.pop() if len(found) == 1 else None


def partition_on_device(
    context: PartitionContext, instruction: HloInstruction, device: int
) -> tuple[ShardedValue, ...]:
    b = context.builder
    operand = b.tuple(replicated_operands(context, instruction))
    here = b.compare(
        b.convert(b.partition_id(), PrimitiveType.S32), b.scalar(PrimitiveType.S32, device), "EQ"
    )
    branches = [
        _branch(context, instruction, operand.shape, device),
        _branch(context, instruction, operand.shape, None),
    ]
    result = b.conditional(here, branches, [operand, operand])
    values = unpack(context, result, replicated_states(instruction.shape), instruction.shape)
    return tuple(_from_device(context, value, device) for value in values)


def _branch(
    context: PartitionContext, instruction: HloInstruction, operand: Shape, device: int | None
) -> HloComputation:
    """Build a branch. It takes the operands as a tuple and returns the results, or zeros if ``device`` is None."""
    name = f"{instruction.name}.{'elsewhere' if device is None else 'here'}"
    target = context.module.new_computation(name)
    b = context.builder.within(target)
    parameter = b.parameter(0, operand)
    if device is None:
        target.root = _zeros(b, instruction.shape)
        return target
    is_feed = instruction.opcode in (Opcode.INFEED, Opcode.OUTFEED)
    target.root = target.create(
        instruction.opcode,
        instruction.shape,
        [b.get_tuple_element(parameter, i) for i in range(instruction.num_operands)],
        instruction.attrs,
        name=instruction.name,
        called_computations=[context.copy_callee(c) for c in instruction.called_computations],
        # The host reads from it which device it feeds.
        sharding=HloSharding.maximal(device) if is_feed else None,
        annotations=without_shardings(instruction.annotations),
    )
    return target


def _zeros(b: Builder, shape: Shape) -> HloInstruction:
    if isinstance(shape, TupleShape):
        return b.tuple([_zeros(b, element) for element in shape.elements])
    if isinstance(shape, TokenShape):
        return b.create(Opcode.AFTER_ALL)
    if not isinstance(shape, ArrayShape):
        raise UnsupportedError(f"a value of shape {shape} cannot stay on one device")
    return b.full(shape, 0)


def _from_device(context: PartitionContext, value: ShardedValue, device: int) -> ShardedValue:
    """Broadcast the device's array to all devices. Every device keeps its own token."""
    if not isinstance(value.hlo.shape, ArrayShape) or context.axes.num_devices == 1:
        return value
    others = [d for d in range(context.axes.num_devices) if d != device]
    groups = ReplicaGroups(groups=((device, *others),))
    attrs = CollectiveAttrs(groups, context.driver.scope.channel_id())
    sent = context.builder.create(Opcode.COLLECTIVE_BROADCAST, (value.hlo,), attrs)
    return ShardedValue(sent, value.state, value.shape)
