"""Memory of this machine: the bytes available to a process, and the error if they do not suffice."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

from spmd.errors import RunError


class OutOfMemoryError(RunError):
    """An array or a program that needs more bytes than the process may have."""


def most_bytes() -> int:
    """Return the most bytes that the process may have: the machine's memory, or its own limit (`ulimit -v`)."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if limit == resource.RLIM_INFINITY else min(physical, limit)


def available_bytes() -> int:
    """Return an estimate of the bytes that the process can still allocate: `most_bytes` less its current use."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return most_bytes()
    return max(0, most_bytes() - pages * os.sysconf("SC_PAGE_SIZE"))


def out_of_memory(what: str, needed: int) -> OutOfMemoryError:
    """Return the error that states the bytes `what` needs and the bytes available."""
    return OutOfMemoryError(f"{what} needs {needed:,} bytes, {available_bytes():,} are available")


def require_bytes(what: str, needed: int) -> None:
    """Raise OutOfMemoryError if `what` needs more bytes than the process may ever have."""
    if needed > most_bytes():
        raise out_of_memory(what, needed)


def as_out_of_memory(error: MemoryError) -> OutOfMemoryError:
    """Return a failed allocation as an error of one line. NumPy states the array's shape, Python states nothing."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    itemsize = getattr(dtype, "itemsize", None)
    if isinstance(shape, tuple) and isinstance(itemsize, int):
        dims = ",".join(map(str, shape))
        return out_of_memory(f"an array {dtype}[{dims}]", math.prod(shape) * itemsize)
    said = f" ({error})" if str(error) else ""
    return OutOfMemoryError(f"out of memory{said}: {available_bytes():,} bytes are available")
