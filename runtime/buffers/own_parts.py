"""Operands of all-gathers that lie in their results, as the part that is this device's own: it is not copied there.

    p = f32[8] multiply(a, b)                     on device 1 written to bytes 32 to 64 of g
    g = f32[16] all-gather(p), {{0,1}}            which copies what device 0 has to bytes 0 to 32, and nothing else

Where a device's part begins is said by its place in its group: a slice with ``parts``. Peers read it there as they
would elsewhere. Only results that no group could hold once are looked at, outputs in the heap or in the place of a
donated parameter: of others, every member would write its part alone (``shared_results.py``). And a place in a heap,
which is taken from the operand's first write on, must not make the sum of what lives at one time larger.
"""

from __future__ import annotations

from runtime.buffers.arena import Interval, lower_bound
from runtime.buffers.colocation import Colocation, Group, GroupKind
from runtime.buffers.program import Step, Value
from runtime.buffers.shared_results import intervals, without
from runtime.buffers.types import ALIGNMENT
from runtime.lowering import LOWERINGS


def place_own_parts(colocation: Colocation) -> None:
    """When all that can share whole places does so."""
    program = colocation.program
    for step in program.entry.steps:
        if type(step) is not Step:
            continue
        parts = LOWERINGS[step.instruction.opcode].own_part(step.instruction, program.device)
        for number, (view, result) in enumerate(zip(step.operands, step.results, strict=False)):
            source, target = colocation.groups[view.value], colocation.groups[result]
            if (
                parts
                and _is_last_read(source, step, number)
                and _is_free(target, source.start, step)
                and _is_one_of(len(parts[0]), source, target)
                and _keeps_the_peak(colocation, source, target)
            ):
                colocation.parts.update(dict.fromkeys(source.values, parts))
                colocation.merge(target, source)


def _is_last_read(source: Group, step: Step, operand: int) -> bool:
    """Whether ``source`` ends as this operand, read whole, and was used by nothing but steps of the same region."""
    if source.kind is not GroupKind.TEMPORARY or source.end != step.position:
        return False
    if any(not _is_local(value, step) for value in source.values):
        return False
    here = [read for value in source.values for read in value.reads if read.step is step]
    return len(here) == 1 and here[0].operand == operand and here[0].view.is_whole


def _is_local(value: Value, step: Step) -> bool:
    """Written and read by steps of this very region."""
    return value.region is step.region and all(read.region is step.region for read in value.reads)


def _is_free(target: Group, since: int, step: Step) -> bool:
    """Whether an output's place has nothing in it from ``since`` until ``step`` writes there."""
    if target.kind not in (GroupKind.OUTPUT, GroupKind.PARAMETER):
        return False
    return all(
        value.start >= step.position or (value.parameter is not None and value.last_read < since)
        for value in target.values
    )


def _is_one_of(count: int, source: Group, target: Group) -> bool:
    """Whether ``target`` is so many times as large, and its parts begin where arrays may."""
    return (
        source.size * count == target.size
        and source.size % ALIGNMENT == 0
        and source.memory_space == target.memory_space
    )


def _keeps_the_peak(colocation: Colocation, source: Group, target: Group) -> bool:
    if target.kind is GroupKind.PARAMETER:
        return True
    others = intervals(without(colocation.in_heaps(), [source, target]))
    joined = Interval(source.start, target.end, target.size)
    return lower_bound([*others, joined]) <= lower_bound([*others, *intervals([source, target])])
