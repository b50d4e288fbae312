"""Reverse along a sharded dimension: tiles are exchanged end for end, and each is reversed on its new device.

    n = 7 over 4 devices, tile 2      [0 1] [2 3] [4 5] [6 .]
    mirrored                          [. 6] [5 4] [3 2] [1 0]      the padding is in front now
    moved up by the padding           [6 5] [4 3] [2 1] [0 .]      a halo of one element from the next device

If the tiles divide evenly, this exchange is the only communication.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.devices.device_lines import mirror_pairs
from partitioner.ops.halo import HaloWindow, exchange
from partitioner.partition.candidates import best_plan
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.generic import emit_local, local_operands, problem_of, rule_for
from partitioner.registry import partition
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs


@partition(Opcode.REVERSE)
def partition_reverse(
    context: PartitionContext, reverse: HloInstruction
) -> tuple[ShardedValue, ...]:
    rule = rule_for(reverse)
    plan = best_plan(problem_of(context, reverse, rule))
    (value,) = emit_local(context, reverse, plan, local_operands(context, reverse, rule, plan))
    for d in reverse.attrs_as(DimensionsAttrs).dimensions:
        if value.state.dims[d]:
            value = replace(value, hlo=_mirrored(context, value, d))
    return (value,)


def _mirrored(context: PartitionContext, value: ShardedValue, dim: int) -> HloInstruction:
    """Exchange tiles (already reversed) end for end, then shift the elements so that padding comes last again."""
    axes = value.state.dims[dim]
    hlo = context.builder.collective_permute(value.hlo, mirror_pairs(context.axes, axes))
    tile = hlo.dims[dim]
    padded_size = tile * context.axes.count(axes)
    padding = padded_size - value.shape.dims[dim]
    if not padding:
        return hlo
    sizes = [padded_size if d == dim else n for d, n in enumerate(value.shape.dims)]
    padded = replace(value, hlo=hlo, shape=value.shape.with_dims(tuple(sizes)))
    return exchange(context, padded, dim, HaloWindow(tile, padding, tile), None)
