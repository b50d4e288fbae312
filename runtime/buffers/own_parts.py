"""Colocation of a device's tile with the array that contains the tiles of all devices, so that it is not copied.

    p = f32[8] multiply(a, b)             on device 1 of {0,1} written to bytes 32 to 64 of g
    g = f32[16] all-gather(p)             copies device 0's part to bytes 0 to 32, and nothing else

    s = f32[8] reduce-scatter(g)          on device 1 written over bytes 32 to 64 of g, which only device 1 still reads

The offset of a device's part depends on its index in its group: the tile has a slice with ``parts``. Peers read an
operand there as in any other slice.

* The operand of an all-gather becomes a part of a result that no group may share: an output in the heap or in a donated
  parameter. In a shared result every member writes only its own part anyway (``shared_results.py``).
* The result of a reduce-scatter becomes a part of an operand that is dead afterwards and is no output. Otherwise all
  bytes of the operand would stay live.

The array is then live during the live ranges of both values. If it is in a heap, this must not increase the maximum of
live bytes.
"""

from __future__ import annotations

from runtime.buffers.colocation import Colocation, Group, GroupKind
from runtime.buffers.heap.arena import Interval, lower_bound
from runtime.buffers.program import ScheduledOp, Value, all_ops
from runtime.buffers.shared_results import intervals, shareable, without
from runtime.buffers.types import ALIGNMENT
from runtime.lowering import LOWERINGS


def colocate_own_parts(colocation: Colocation) -> None:
    """Merge the groups of own parts with those of their arrays. It must run after all sharing of entire slices."""
    program = colocation.program
    for op in all_ops(program.entry):
        if type(op) is not ScheduledOp:
            continue
        parts = LOWERINGS[op.instruction.opcode].own_part(op.instruction, program.device)
        if not parts:
            continue
        for number, (view, result) in enumerate(zip(op.operands, op.results, strict=True)):
            operand, target = colocation.groups[view.value], colocation.groups[result]
            if not (_is_entire(colocation, view.value) and _dies_at(operand, op, number)):
                continue
            gathers = view.value.size < result.size
            tile, full = (operand, target) if gathers else (target, operand)
            may_lie = (
                _is_free(full, tile.start, op)
                if gathers
                else _may_shrink(colocation, op, tile, full)
            )
            if (
                may_lie
                and _is_one_of(len(parts[0]), tile, full)
                and _keeps_the_peak(colocation, tile, full)
            ):
                colocation.parts.update(dict.fromkeys(tile.values, parts))
                colocation.merge(full, tile)


def _is_entire(colocation: Colocation, value: Value) -> bool:
    """Return whether ``value`` is no own part. The memory around a part holds other devices' parts, which stay live."""
    return value not in colocation.parts


def _dies_at(group: Group, op: ScheduledOp, operand: int) -> bool:
    """Return whether ``group`` is a temporary whose last use is as this operand of ``op``, read entirely.

    Only ops of the same region may use it.
    """
    if group.kind is not GroupKind.TEMPORARY or group.end != op.position:
        return False
    here = [read for value in group.values for read in value.reads if read.op is op]
    return (
        all(_is_local(value, op) for value in group.values)
        and len(here) == 1
        and here[0].operand == operand
        and here[0].view.is_entire
    )


def _is_local(value: Value, op: ScheduledOp) -> bool:
    """Return whether only ops of the region of ``op`` itself write and read ``value``."""
    return value.region is op.region and all(read.region is op.region for read in value.reads)


def _is_free(full: Group, since: int, op: ScheduledOp) -> bool:
    """Return whether ``full`` is an output whose slice is unused from position ``since`` until ``op`` writes it."""
    if full.kind not in (GroupKind.OUTPUT, GroupKind.PARAMETER):
        return False
    return all(
        value.start >= op.position or (value.parameter is not None and value.last_read < since)
        for value in full.values
    )


def _may_shrink(colocation: Colocation, op: ScheduledOp, tile: Group, full: Group) -> bool:
    """Return whether the result ``tile`` of ``op`` may be a part of ``full``: a local temporary in unshared memory."""
    return (
        tile.kind is GroupKind.TEMPORARY
        and all(value.start >= op.position and _is_local(value, op) for value in tile.values)
        and not shareable(colocation.program, [full])
    )


def _is_one_of(count: int, tile: Group, full: Group) -> bool:
    """Return whether ``full`` consists of ``count`` tiles of the size of ``tile``, at aligned offsets."""
    return (
        tile.size * count == full.size
        and tile.size % ALIGNMENT == 0
        and tile.memory_space == full.memory_space
    )


def _keeps_the_peak(colocation: Colocation, tile: Group, full: Group) -> bool:
    """Return whether merging ``tile`` with ``full`` leaves the maximum of live bytes in heaps as it is."""
    if full.kind is GroupKind.PARAMETER:
        return True
    others = intervals(without(colocation.in_heaps(), [tile, full]))
    joined = Interval(min(tile.start, full.start), max(tile.end, full.end), full.size)
    return lower_bound([*others, joined]) <= lower_bound([*others, *intervals([tile, full])])
