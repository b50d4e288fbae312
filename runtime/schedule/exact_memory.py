"""What buffer assignment makes of an order: exact, and dearer than the model by ten times and more."""

from __future__ import annotations

import numpy as np

from runtime.buffers.assign import assign_buffers
from runtime.buffers.colocation import GroupKind, colocate
from runtime.buffers.heap import fits
from runtime.buffers.linearize import linearize
from runtime.buffers.program import Program
from runtime.buffers.shared_results import intervals
from runtime.schedule.step_facts import StepFacts
from spmd.errors import UnsupportedError
from spmd.hlo import HloModule


def step_facts(module: HloModule) -> StepFacts | None:
    """None for a module that the runtime does not lower: an op is refused, a constant has no value."""
    try:
        return StepFacts.of(linearize(module))
    except UnsupportedError:
        return None


def device_bytes(module: HloModule) -> int:
    """Everything that a device holds while it runs ``module`` in its order: what a memory limit is about."""
    return program_bytes(linearize(module))


def needs_no_more(program: Program, bound: int) -> bool:
    """Whether ``device_bytes`` are at most ``bound``; values are packed no better than it takes to know."""
    groups = colocate(program).all_groups()
    fixed = [g for g in groups if g.kind in (GroupKind.PARAMETER, GroupKind.CONSTANT)]
    places = [g for g in groups if g.kind not in (GroupKind.PARAMETER, GroupKind.CONSTANT)]
    if any(group.memory_space for group in places):
        return program_bytes(program) <= bound
    # Results that a replica group holds once leave the sum of heaps as small as one heap.
    return fits(intervals(places), bound - sum(group.size for group in fixed))


def least_device_bytes(module: HloModule) -> int:
    """What no packing of the module's values goes below: they are joined into places, which are not laid out."""
    return least_bytes(linearize(module))


def program_bytes(program: Program) -> int:
    """As ``device_bytes``."""
    return sum(a.size for a in assign_buffers(program).assignment.allocations)


def least_bytes(program: Program) -> int:
    """As ``least_device_bytes``."""
    change = np.zeros(program.end + 2, np.int64)
    always = 0
    for group in colocate(program).all_groups():
        if group.kind in (GroupKind.PARAMETER, GroupKind.CONSTANT):
            always += group.size
            continue
        change[group.start] += group.size
        change[group.end + 1] -= group.size
    return always + int(np.cumsum(change).max())
