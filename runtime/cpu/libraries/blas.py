"""The BLAS library behind NumPy's matrix products: its functions for native code, and the number of its threads.

Devices share a machine's cores. If BLAS started one thread per core for every device, its threads would mostly wait for
a core (a GPT training step of 0.45 s on 2 cores and 2 devices takes 6 s). Therefore each device multiplies with one
thread, unless the caller sets another number.
"""

from __future__ import annotations

import ctypes
from dataclasses import field
from functools import cache

from runtime.codegen.llvm.jit import NativeLibrary
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from spmd.lazy_dataclass import dataclass
from spmd.numpy_library import numpy_library
from spmd.shape import PrimitiveType

_SET = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads")
_GET = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads")


@cache
def library_function(names: tuple[str, ...]) -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]
    """Return the first of the functions ``names`` that the library has; None if there is no library or it has none."""
    library = numpy_library()
    for name in names:
        if library is not None and hasattr(library, name):
            return getattr(library, name)
    return None


@dataclass(frozen=True, slots=True)
class BlasFunction:
    """Function of BLAS or LAPACK for one element type.

    index_bits: width in bits of its integer arguments, 32 or 64. alive: objects that own the code.
    """

    address: int
    index_bits: int
    alive: tuple[object, ...] = field(default=(), compare=False)


#: Enumerators of CBLAS.
ROW_MAJOR, COLUMN_MAJOR = 101, 102
NO_TRANSPOSE, TRANSPOSE, ADJOINT = 111, 112, 113


def gemm_parameters(index: str, factor: str) -> tuple[str, ...]:
    """Return the LLVM types of the parameters of CBLAS's gemm, whose sizes are of type ``index``."""
    return (*["i32"] * 3, *[index] * 3, factor, *("ptr", index) * 2, factor, "ptr", index)


#: Letters of the element types in the names of functions.
LETTERS = {
    PrimitiveType.F32: "s",
    PrimitiveType.F64: "d",
    PrimitiveType.C64: "c",
    PrimitiveType.C128: "z",
}
_CORE_NAME = ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename")
_AVX512 = ("SkylakeX", "Cooperlake", "SapphireRapids")
_AVX2 = ("Haswell", "Zen")


@dataclass(frozen=True)
class CutMultiples:
    """Multiples of rows and of columns at which a product may be cut without a change of its bits.

    slow: multiple along the dimension of the result that varies slower in memory. fast: multiple along the other one.
    0 means that any cut may change the bits.
    """

    slow: int
    fast: int


@cache
def cut_multiples(kind: PrimitiveType) -> CutMultiples:
    """Return the multiples at which products of type ``kind`` by this BLAS library may be cut without a change of bits.

    They do not hold for products by OpenBLAS's small-matrix kernels. OpenBLAS's kernels for AVX-512 sum each element of
    a block of 32 in the same order. Its kernels for AVX2 compute f32 results in strips of 12 along the slower
    dimension, and sum the elements of a narrower strip in another order; along the faster dimension the order depends
    on the full size. Complex products were compared with AVX-512 alone. tests/runtime/cpu/libraries/test_blas_cuts.py
    compares the bits. Both multiples are 0 for any other library or processor.
    """
    ask = library_function(_CORE_NAME)
    if ask is None:
        return CutMultiples(0, 0)
    ask.restype = ctypes.c_char_p
    name = (ask() or b"").decode()
    if name in _AVX512:
        return CutMultiples(32, 32)
    if name in _AVX2 and not kind.is_complex:
        return CutMultiples(96, 96 if kind is PrimitiveType.F64 else 0)
    return CutMultiples(0, 0)


def gemm_function(
    kind: PrimitiveType, sizes: tuple[int, int, int] | None = None
) -> BlasFunction | None:
    """Return the matrix product (CBLAS gemm) of type ``kind`` for native code; None if the library has none.

    If the processor has a tile unit, the returned f32 product uses the unit for sizes at which it is faster and calls
    BLAS for others. sizes: m, n and k, if they are known; BLAS's function is returned if the unit is slower for them.
    """
    blas = typed_function(kind, "cblas_{}gemm")
    if blas is None or kind is not PrimitiveType.F32 or not has_tile_unit():
        return blas
    from runtime.cpu.kernels.gemm import tuning  # other processors need it only for new code

    may_gain = sizes is None or tuning.TILE_THRESHOLDS.at(*sizes)
    return _tile_gemm(blas) if may_gain else blas


def begin_gemm() -> None:
    """Start compiling the tile unit's f32 product, if there is a unit. This takes as long as compiling a small program.

    The call does not wait for the code.
    """
    blas = typed_function(PrimitiveType.F32, "cblas_{}gemm")
    if blas is not None and has_tile_unit():
        _tile_gemm_library(blas)


@cache
def _tile_gemm(blas: BlasFunction) -> BlasFunction:
    """Return the f32 product that uses the tile unit for large sizes and ``blas`` for others. Waits for its code."""
    from runtime.cpu.kernels.gemm.tile_sgemm_ir import FUNCTION

    code = _tile_gemm_library(blas)
    return BlasFunction(code.address(FUNCTION), blas.index_bits, (code,))


@cache
def _tile_gemm_library(blas: BlasFunction) -> NativeLibrary:
    """Return the library of ``_tile_gemm``'s function. The first call starts its compilation."""
    from runtime.cpu.kernels.gemm.tile_sgemm_ir import tile_gemm_code

    threads = library_function(_GET)
    asks = None if threads is None else ctypes.cast(threads, ctypes.c_void_p).value
    return tile_gemm_code(blas.address, blas.index_bits, asks)


def gemv_function(kind: PrimitiveType) -> BlasFunction | None:
    """Return the product of a matrix and a vector (CBLAS gemv) of type ``kind``; None if the library has none."""
    return typed_function(kind, "cblas_{}gemv")


@cache
def typed_function(kind: PrimitiveType, name: str) -> BlasFunction | None:
    """Return the library's function ``name``, in which the letter of ``kind`` replaces {}; None if it has none.

    The function with 64-bit integers is preferred to the one with 32-bit integers.
    """
    if kind not in LETTERS:
        return None
    for suffix, bits in (("64_", 64), ("", 32)):
        function = library_function((f"scipy_{name.format(LETTERS[kind])}{suffix}",))
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            return BlasFunction(address, bits)
    return None


def blas_threads() -> int | None:
    """Return the number of threads of a BLAS call; None if the library has no function that returns it."""
    get = library_function(_GET)
    return None if get is None else int(get())


def set_blas_threads(count: int) -> None:
    """Set the number of threads of a BLAS call in this process, if the library has a function for that."""
    function = library_function(_SET)
    if function is not None:
        function(count)


def reserve_work_buffers(callers: int) -> int:
    """Make OpenBLAS map work buffers for ``callers`` concurrent callers now instead of during the first step.

    OpenBLAS keeps the buffers. Returns the number of buffers; 0 if the library lacks OpenBLAS's allocation functions.
    """
    allocate, free = (
        library_function(("blas_memory_alloc",)),
        library_function(("blas_memory_free",)),
    )
    if allocate is None or free is None:
        return 0
    allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_int,)
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    buffers = [allocate(1) for _ in range(callers)]
    for buffer in reversed(buffers):
        free(buffer)
    return len(set(buffers))


class BlasThreads:
    """Context manager that sets the number of threads of a BLAS call to ``count``, and restores the former number.

    It may be entered again after it was left. It does nothing if the library has no functions for the number.
    """

    def __init__(self, count: int) -> None:
        self._count = self._before = count
        # The functions are looked up once, because every step enters and leaves.
        self._get, self._set = library_function(_GET), library_function(_SET)

    def __enter__(self) -> None:
        if self._get is not None and self._set is not None:
            self._before = self._get()
            if self._before != self._count:
                self._set(self._count)

    def __exit__(self, *_: object) -> None:
        if self._set is not None and self._before != self._count:
            self._set(self._before)
