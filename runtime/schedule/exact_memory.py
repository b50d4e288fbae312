"""What buffer assignment makes of an order: exact, and dearer than the model by about ten times."""

from __future__ import annotations

from runtime.buffers.assign import assign_buffers
from runtime.buffers.linearize import linearize
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
