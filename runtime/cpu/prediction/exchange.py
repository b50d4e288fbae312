"""Seconds of collectives: latency, the bytes read from peers over the narrowest link, and cache misses.

Bytes that a device writes into a peer's memory take no time of their own: its core does not wait for stores.
"""

from __future__ import annotations

import math

from runtime.program.thunks import CollectiveStartThunk
from spmd.machine.description import MachineDescription
from spmd.machine.exchange import Exchange

#: Seconds of beginning a row of a tile that is not contiguous in the whole array (24 ns for 512, 29 ns for 4096 bytes).
ROW_SECONDS = 2.5e-8


def exchange_seconds(
    thunk: CollectiveStartThunk, machine: MachineDescription, devices: int, farther: float
) -> float:
    """Return the seconds from start to end if all devices start at the same time.

    ``farther`` is the additional time of a copy because operands and results are not in the L2 cache.
    """
    way = exchange_among(machine, devices)
    if way is None:
        return machine.thunk_seconds
    result = float(sum(array.view.byte_size for array in thunk.results))
    members = max(map(len, thunk.op.groups), default=1)
    read = result * thunk.op.collective.read_per_result_byte(members, devices)
    rows = ROW_SECONDS * _rows(thunk, members)
    return machine.thunk_seconds + way.seconds(read) + way.uncached_slowdown * farther + rows


def _rows(thunk: CollectiveStartThunk, members: int) -> int:
    """Return the number of rows of all tiles that lie side by side in an operand or a result."""
    rows = 0
    for operand, result in zip(thunk.operands, thunk.results, strict=False):
        tile = thunk.op.collective.own_tile(operand.view, result.view)
        if tile is not None:
            _, full, dimension = tile
            count = math.prod(full.dims[:dimension])
            rows += members * count if count > 1 else 0
    return rows


def exchange_among(machine: MachineDescription, devices: int) -> Exchange | None:
    """Return the narrowest exchange that connects ``devices`` devices, or None if the machine describes none."""
    ways = machine.exchanges
    return next((way for way in ways if way.devices >= devices), ways[-1] if ways else None)
