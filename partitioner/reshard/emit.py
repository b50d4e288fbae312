"""Write a plan's steps as instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from partitioner.reshard.step import Step, StepContext

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction


def emit_steps(context: StepContext, value: ShardedValue, steps: Iterable[Step]) -> HloInstruction:
    """The local array of ``value`` after all ``steps``; the given one when there are none."""
    for step in steps:
        after = step.apply(value.state)
        if value.shape.num_elements == 0:
            # Nothing to send: whatever the steps, the tile is empty.
            local = context.builder.full(after.local_shape(value.shape, context.axes), 0)
        else:
            local = step.emit(context, value)
        value = replace(value, hlo=local, state=after)
    return value.hlo
