"""Python callbacks on tiles: each device calls the function with its own (jax.debug.callback(..., partitioned=True)).

Other callbacks take replicated operands, on the device that their annotation names (single_device.py), or on every
device.
"""

from __future__ import annotations

from partitioner.annotations.reader import without_shardings
from partitioner.ops.custom_call import localize_custom_call
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.registry import partition_target
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction
from spmd.host_callback import PARTITIONED_TARGETS
from spmd.shape import ArrayShape, leaves


@partition_target(*PARTITIONED_TARGETS)
def partition_callback(
    context: PartitionContext, call: HloInstruction
) -> tuple[ShardedValue, ...] | None:
    """Call the function on tiles. Returns None for a call with tokens, which is ordered and runs on replicated
    operands.
    """
    if any(not isinstance(operand.shape, ArrayShape) for operand in call.operands):
        return None
    if any(True for _ in leaves(call.shape)):
        raise UnsupportedError(f"{call.name}: a partitioned callback gives no results")
    operands = []
    for operand in call.operands:
        (value,) = context.values(operand)
        operands.append(context.reshard(value, value.state.without_partial()).hlo)
    context.target.create(
        call.opcode,
        call.shape,
        operands,
        localize_custom_call(context, call, operands, []),
        name=call.name,
        annotations=without_shardings(call.annotations),
    )
    return ()
