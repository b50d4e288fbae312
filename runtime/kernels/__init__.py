"""NumPy kernels, one file per kind. Importing this package fills ``runtime.kernel.NUMPY_KERNELS``."""

from runtime.kernels import (
    copy,
    dot,
    elementwise,
    indexed,
    panel_convolution,
    reduce,
    reference,
    slicing,
)

__all__ = [
    "copy",
    "dot",
    "elementwise",
    "indexed",
    "panel_convolution",
    "reduce",
    "reference",
    "slicing",
]
