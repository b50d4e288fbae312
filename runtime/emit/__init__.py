"""Thunk emission: one file per op family. Importing this package fills ``runtime.lowering.LOWERINGS``."""

from runtime.emit import (
    collective,
    convolution,
    device_id,
    dot,
    elementwise,
    fft,
    gather_scatter,
    reduce,
    reduce_window,
    reference,
    reshape,
    slicing,
    sort,
)

__all__ = [
    "collective",
    "convolution",
    "device_id",
    "dot",
    "elementwise",
    "fft",
    "gather_scatter",
    "reduce",
    "reduce_window",
    "reference",
    "reshape",
    "slicing",
    "sort",
]
