"""Collectives: a latency, what a device sends at the rate of the narrowest way that joins all devices, and how far away
operands and results are.
"""

from __future__ import annotations

from runtime.program.thunks.collective import CollectiveStartThunk
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
    members = max(map(len, thunk.op.groups), default=1)
    sent = result * thunk.op.collective.sent_per_result_byte(members, devices)
    return machine.thunk_seconds + way.seconds(sent) + way.far * farther


def exchange_among(machine: MachineDescription, devices: int) -> Exchange | None:
    """The narrowest way that joins all devices; None where a machine describes none."""
    ways = machine.exchanges
    return next((way for way in ways if way.devices >= devices), ways[-1] if ways else None)
