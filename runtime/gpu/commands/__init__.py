"""Rules for GPU commands, a file for each kind of thunk; importing this fills the table of rules (``planning.py``)."""

from runtime.gpu.commands import (
    callback,
    collective,
    conditional,
    device_id,
    feed,
    kernel,
    sequence,
    while_loop,
)

__all__ = [
    "callback",
    "collective",
    "conditional",
    "device_id",
    "feed",
    "kernel",
    "sequence",
    "while_loop",
]
