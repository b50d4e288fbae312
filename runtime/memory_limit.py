"""Refuse a program that needs more device memory than it may use, before anything is allocated."""

from __future__ import annotations

from runtime.device_program import DeviceProgram
from spmd.errors import RunError

#: Number of buffers that the error message names.
MOST_NAMED = 5


class MemoryLimitError(RunError):
    """Program that does not fit the memory it may use."""


def require_memory(program: DeviceProgram, limit: int | None) -> None:
    """Raise MemoryLimitError if a device needs more than ``limit`` bytes.

    The message names the largest buffers that are live at the peak, and the limit that would suffice.
    """
    assignment = program.assignment
    needed = assignment.device_bytes
    if limit is None or needed <= limit:
        return
    from runtime.buffers.live_buffers import LiveBuffers

    live = LiveBuffers(assignment)
    largest = live.largest_at(live.peak)[:MOST_NAMED]
    buffers = "".join(f"\n  {one.name} {one.shape}: {one.slice.size:,} bytes" for one in largest)
    raise MemoryLimitError(
        f"{program.name} takes {needed:,} bytes on each device, the limit is {limit:,}: --memory-limit {needed} would "
        f"do; where most is live ({int(live.bytes_at.max()):,} bytes), the largest buffers are{buffers}"
    )
