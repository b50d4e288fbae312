"""Refuse a program that takes more of a device's memory than it may, before anything is allocated."""

from __future__ import annotations

import argparse
import re

from runtime.executable import Executable
from spmd.errors import RunError

#: Buffers that a refusal names.
MOST_NAMED = 5

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class MemoryLimitError(RunError):
    """A program that does not fit the memory it may use."""


def byte_count(text: str) -> int:
    """An argparse type: bytes, or KiB, MiB and GiB as in 512K, 64M, 1.5G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes (1000000, 512K, 1.5G)")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def require_memory(executable: Executable, limit: int | None) -> None:
    """MemoryLimitError, with the largest buffers and the limit that would do, where a device needs more bytes."""
    assignment = executable.program.assignment
    needed = sum(allocation.size for allocation in assignment.allocations)
    if limit is None or needed <= limit:
        return
    largest = sorted(assignment.values, key=lambda value: -value.slice.size)[:MOST_NAMED]
    buffers = "".join(f"\n  {one.name} {one.shape}: {one.slice.size:,} bytes" for one in largest)
    raise MemoryLimitError(
        f"{executable.program.name} takes {needed:,} bytes on each device, the limit is {limit:,}: "
        f"--memory-limit {needed} would do; the largest buffers are{buffers}"
    )
