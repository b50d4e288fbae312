"""Write a plan's steps as instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from partitioner.reshard.step import ReshardContext, ReshardStep

if TYPE_CHECKING:
    from partitioner.partition.context import ShardedValue
    from spmd.hlo.instruction import HloInstruction


def emit_steps(
    context: ReshardContext, value: ShardedValue, steps: Iterable[ReshardStep]
) -> HloInstruction:
    """Return the local array of ``value`` after all ``steps``; the given one without steps."""
    for step in steps:
        after = step.apply(value.state)
        if value.shape.num_elements == 0:
            # Nothing is sent: the tile is empty, whatever the steps.
            local = context.builder.full(after.local_shape(value.shape, context.axes), 0)
        else:
            local = step.emit(context, value)
        value = replace(value, hlo=local, state=after)
    return value.hlo
