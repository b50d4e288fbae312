"""Limits of inputs, which bound the time and memory of untrusted texts, protos and modules, and of the machine itself.

All other costs grow linearly with the size of the input. A text or proto beyond a limit is refused by an error that
names the limit; programs written by JAX reach none of them. So is a program that needs more memory than there is.
"""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path
from typing import Final

from spmd.errors import RunError

#: Deepest nesting of brackets, tuple shapes, literals and operands written in place: bounds the recursion.
MAX_NESTING: Final = 100

#: Deepest nesting of computations written in place (``to_apply={...}``): each level takes several frames.
MAX_INLINE_NESTING: Final = 25

#: Most dimensions of an array or of a device grid: NumPy's own limit.
MAX_RANK: Final = 64

#: Largest dimension size, as in XLA, whose sizes are signed 64-bit integers.
MAX_SIZE: Final = 2**63 - 1

#: Most leaves of a tuple shape, counted with repetition: ``tuple(x, x)`` doubles them in a few bytes of text.
MAX_LEAVES: Final = 1 << 16

#: Most items that one text may imply without spelling them out: leaves of left-out tuple shapes, ids of device lists in
#: iota form. It bounds the cost of a text beyond its length.
MAX_IMPLIED: Final = 1 << 17

#: Most zeros that all constants of one text may imply, as ``f32[4096,4096] constant(0)``: the memory is untouched until
#: read.
MAX_ZEROS: Final = 1 << 26

#: Most device ids that are written out one by one; the iota and mesh forms above it stay symbolic.
MAX_DEVICES: Final = 1 << 20

#: Most bytes to which compressed data may unpack: a thousandth of it can encode this many.
MAX_INFLATED: Final = 1 << 28

#: Most replicas or partitions that a header may state.
MAX_COUNT: Final = 2**31 - 1

#: Most instructions of a program in which each call, loop and branch has its own copy: nested calls double them in a
#: few bytes.
MAX_UNSHARED: Final = 1 << 18

#: Most errors reported for one text and violations for one module; reading stops after this many.
MAX_ERRORS: Final = 20

#: Most instructions with an error, reported or following from a reported one, after which reading continues.
MAX_SKIPPED: Final = 1_000

#: Most characters after an error that are searched for the end of the instruction.
MAX_LOOKAHEAD: Final = 4_000

#: Most characters of an input's line, or of an instruction, in a message.
MAX_EXCERPT: Final = 200


# ---- memory of this machine


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
