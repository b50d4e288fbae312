"""Collectives: a latency, what a device sends at the rate of the narrowest way that joins all devices, and how far away
operands and results are.
"""

from __future__ import annotations

from runtime.program.thunks.collective import CollectiveStartThunk
from runtime.program.thunks.collective_plans import (
    AllGatherPlan,
    AllReducePlan,
    AllToAllPlan,
    CollectivePermutePlan,
    CollectivePlan,
    ReduceScatterPlan,
)
from spmd.machine.description import Exchange, MachineDescription


def exchange_seconds(
    thunk: CollectiveStartThunk, machine: MachineDescription, devices: int, farther: float
) -> float:
    """From the start to the end, where all devices start together. farther: how much longer a copy would take to touch
    operands and results where they lie than near.
    """
    way = exchange_among(machine, devices)
    if way is None:
        return machine.thunk_seconds
    result = float(sum(place.view.byte_size for place in thunk.results))
    sent = result * sent_per_result_byte(thunk.plan, devices)
    return machine.thunk_seconds + way.seconds(sent) + way.far * farther


def exchange_among(machine: MachineDescription, devices: int) -> Exchange | None:
    """The narrowest way that joins all devices; None where a machine describes none."""
    ways = machine.exchanges
    return next((way for way in ways if way.devices >= devices), ways[-1] if ways else None)


def sent_per_result_byte(plan: CollectivePlan, devices: int) -> float:
    """With bandwidth-optimal algorithms; a permute is averaged over all ``devices``."""
    n = max(map(len, plan.groups), default=1)
    if isinstance(plan, CollectivePermutePlan):
        return len(plan.pairs) / devices
    if isinstance(plan, AllReducePlan):
        return 2 * (n - 1) / n
    if isinstance(plan, AllGatherPlan | AllToAllPlan):
        return (n - 1) / n
    return n - 1.0 if isinstance(plan, ReduceScatterPlan) else 1.0
