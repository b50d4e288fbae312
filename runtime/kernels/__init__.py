"""Kernels, one file per kind. Importing this package fills ``runtime.kernel.NUMPY_KERNELS``."""

from runtime.kernels import (
    copy,
    dot,
    elementwise,
    fft,
    indexed,
    loop,
    native_elementwise,
    panel_convolution,
    program_reduce,
    reduce,
    reduce_window,
    reference,
    rows,
    select_and_scatter,
    slicing,
    sort,
)

__all__ = [
    "copy",
    "dot",
    "elementwise",
    "fft",
    "indexed",
    "loop",
    "native_elementwise",
    "panel_convolution",
    "program_reduce",
    "reduce",
    "reduce_window",
    "reference",
    "rows",
    "select_and_scatter",
    "slicing",
    "sort",
]
