"""Thunk emission: one file per op family. Importing this package fills ``runtime.lowering.LOWERINGS``."""

from runtime.emit import (
    all_to_all,
    collective,
    convolution,
    device_id,
    dot,
    elementwise,
    fft,
    fusion,
    gather_scatter,
    reduce,
    reduce_window,
    reference,
    reshape,
    slicing,
    sort,
)

__all__ = [
    "all_to_all",
    "collective",
    "convolution",
    "device_id",
    "dot",
    "elementwise",
    "fft",
    "fusion",
    "gather_scatter",
    "reduce",
    "reduce_window",
    "reference",
    "reshape",
    "slicing",
    "sort",
]
