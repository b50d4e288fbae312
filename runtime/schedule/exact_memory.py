"""What buffer assignment makes of an order: exact, and dearer than the model by ten times and more."""

from __future__ import annotations

import numpy as np

from runtime.buffers.assign import assign_buffers
from runtime.buffers.colocation import colocate
from runtime.buffers.linearize import linearize
from runtime.buffers.types import AllocationKind
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
    assignment = assign_buffers(linearize(module)).assignment
    return sum(allocation.size for allocation in assignment.allocations)


def least_device_bytes(module: HloModule) -> int:
    """What no packing of the module's values goes below: they are joined into places, which are not laid out."""
    program = linearize(module)
    change = np.zeros(program.end + 2, np.int64)
    always = 0
    for group in colocate(program).all_groups():
        if group.kind in (AllocationKind.PARAMETER, AllocationKind.CONSTANT):
            always += group.size
            continue
        change[group.start] += group.size
        change[group.end + 1] -= group.size
    return always + int(np.cumsum(change).max())
