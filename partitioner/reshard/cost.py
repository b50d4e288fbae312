"""Cost of a step: bytes on the wire, plus a small cost of each collective and of local copies."""

from __future__ import annotations

from collections.abc import Iterable

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.step import ReshardStep
from spmd.shape import ArrayShape

#: Start-up cost of a collective in bytes. It is small against the tensors that matter: it favours fewer collectives
#: among equal plans, and keeps scalars from being split.
LATENCY_BYTES = 1024.0

#: Cost of writing a byte locally, in bytes on the wire.
LOCAL_COPY = 1.0 / 1024

#: Cost of any step, so that the shorter of two equal plans wins.
STEP_BYTES = 0.125


def step_cost(
    axes: DeviceAxes, shape: ArrayShape, state: ShardState, step: ReshardStep, after: ShardState
) -> float:
    """Return the cost in bytes on the wire of taking ``step`` from ``state`` to ``after``."""
    cost = STEP_BYTES + LOCAL_COPY * after.local_shape(shape, axes).byte_size
    return cost + LATENCY_BYTES * step.collectives + step.wire_bytes(axes, shape, state)


def plan_cost(
    axes: DeviceAxes, shape: ArrayShape, source: ShardState, steps: Iterable[ReshardStep]
) -> float:
    """Return the cost of all steps, one after the other."""
    total, state = 0.0, source
    for step in steps:
        after = step.apply(state)
        total += step_cost(axes, shape, state, step, after)
        state = after
    return total


def plan_wire_bytes(
    axes: DeviceAxes, shape: ArrayShape, source: ShardState, steps: Iterable[ReshardStep]
) -> float:
    """Return the bytes a device sends over all steps, averaged over devices."""
    total, state = 0.0, source
    for step in steps:
        total += step.wire_bytes(axes, shape, state)
        state = step.apply(state)
    return total
