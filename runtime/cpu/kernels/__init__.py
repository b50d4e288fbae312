"""Kernels, one file per kind. Importing this package fills ``runtime.program.kernel.CPU_KERNELS``."""

from runtime.cpu.kernels import reference
from runtime.cpu.kernels.convolution import grouped_form, panel_form, phase_form
from runtime.cpu.kernels.copy import copy, slicing, uninitialized
from runtime.cpu.kernels.fft import fft
from runtime.cpu.kernels.gather_scatter import gather_scatter
from runtime.cpu.kernels.gemm import dot, product_epilogue, sliced_product
from runtime.cpu.kernels.linalg import factorizations, linear_algebra
from runtime.cpu.kernels.loop import loop, native_elementwise
from runtime.cpu.kernels.random import random_bits
from runtime.cpu.kernels.reduce import program_reduce, reduce_window, select_and_scatter
from runtime.cpu.kernels.rows import rows
from runtime.cpu.kernels.sort import sort

__all__ = [
    "copy",
    "dot",
    "factorizations",
    "fft",
    "gather_scatter",
    "grouped_form",
    "linear_algebra",
    "loop",
    "native_elementwise",
    "panel_form",
    "phase_form",
    "product_epilogue",
    "program_reduce",
    "random_bits",
    "reduce_window",
    "reference",
    "rows",
    "select_and_scatter",
    "sliced_product",
    "slicing",
    "sort",
    "uninitialized",
]
