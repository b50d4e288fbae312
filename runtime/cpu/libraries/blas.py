"""The BLAS library behind NumPy's matrix products: its threads, and its functions for native code.

Devices share a machine's cores: a BLAS that starts a thread per core on every device spends its time waiting (a GPT
training step of 0.45 s on 2 cores and 2 devices takes 6 s). So each device multiplies with one thread unless asked.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cache

from runtime.codegen.llvm.jit import NativeLibrary
from runtime.cpu.kernels.gemm.tile_choice import GAINS
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from spmd.numpy_library import numpy_library
from spmd.shape import PrimitiveType

_SET = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads")
_GET = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads")


def library_function(names: tuple[str, ...]) -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]
    """The first of ``names`` that the library has."""
    library = numpy_library()
    for name in names:
        if library is not None and hasattr(library, name):
            return getattr(library, name)
    return None


@dataclass(frozen=True, slots=True)
class BlasFunction:
    """A function of cblas for one element type: where its code is, and how many bits its sizes have.

    ``alive``: what the code lives as long as.
    """

    address: int
    index_bits: int
    alive: tuple[object, ...] = field(default=(), compare=False)


_LETTERS = {PrimitiveType.F32: "s", PrimitiveType.F64: "d"}
_CORE_NAME = ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename")
_AVX512 = ("SkylakeX", "Cooperlake", "SapphireRapids")
_AVX2 = ("Haswell", "Zen")


@dataclass(frozen=True)
class CutMultiples:
    """Multiples of rows or columns at which a product may be cut in pieces that have the bits of the whole.

    slow, fast: along the slower and the faster varying dimension of the result in memory; 0: no cut keeps the bits.
    """

    slow: int
    fast: int


@cache
def cut_multiples(kind: PrimitiveType) -> CutMultiples:
    """Return where products in ``kind`` by this BLAS library may be cut, but for those that are small to it.

    OpenBLAS's kernels for AVX-512 sum each element alike wherever it stands in blocks of 32. Those for AVX2 make f32
    results in strips of 12 along the slower dimension, and sum the elements of a narrower strip in another order; along
    the faster dimension the order depends on the size of the whole. tests/runtime/cpu/libraries/test_blas_cuts.py
    compares the bits.
    """
    ask = library_function(_CORE_NAME)
    if ask is None:
        return CutMultiples(0, 0)
    ask.restype = ctypes.c_char_p
    name = (ask() or b"").decode()
    if name in _AVX512:
        return CutMultiples(32, 32)
    if name in _AVX2:
        return CutMultiples(96, 96 if kind is PrimitiveType.F64 else 0)
    return CutMultiples(0, 0)


def gemm_function(
    kind: PrimitiveType, sizes: tuple[int, int, int] | None = None
) -> BlasFunction | None:
    """The product of matrices of ``kind`` as native code calls it; None where there is none that can be found.

    The processor's tile unit does f32 where it is there and gains; it hands on to BLAS itself what does not. sizes: m,
    n and k, where they are known, so that code for the unit need not be made where it cannot gain.
    """
    blas = _blas_function(kind, "gemm")
    may_gain = sizes is None or GAINS.at(*sizes)
    if blas is None or kind is not PrimitiveType.F32 or not may_gain or not has_tile_unit():
        return blas
    return _tile_gemm(blas)


def begin_gemm() -> None:
    """Have the code compiled that large f32 products need, where there is any: it takes as long as a small program."""
    blas = _blas_function(PrimitiveType.F32, "gemm")
    if blas is not None and has_tile_unit():
        _tile_gemm_library(blas)


@cache
def _tile_gemm(blas: BlasFunction) -> BlasFunction:
    from runtime.cpu.kernels.gemm.tile_sgemm_ir import FUNCTION

    code = _tile_gemm_library(blas)
    return BlasFunction(code.address(FUNCTION), blas.index_bits, (code,))


@cache
def _tile_gemm_library(blas: BlasFunction) -> NativeLibrary:
    """Return the library; its compilation begins with this call."""
    from runtime.cpu.kernels.gemm.tile_sgemm_ir import tile_gemm_code

    threads = library_function(_GET)
    asks = None if threads is None else ctypes.cast(threads, ctypes.c_void_p).value
    return tile_gemm_code(blas.address, blas.index_bits, asks)


def gemv_function(kind: PrimitiveType) -> BlasFunction | None:
    """The same of a matrix and a vector."""
    return _blas_function(kind, "gemv")


@cache
def _blas_function(kind: PrimitiveType, name: str) -> BlasFunction | None:
    library = numpy_library()
    letter = _LETTERS.get(kind)
    if library is None or letter is None:
        return None
    for symbol, bits in (
        (f"scipy_cblas_{letter}{name}64_", 64),
        (f"scipy_cblas_{letter}{name}", 32),
    ):
        if hasattr(library, symbol):
            address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
            assert address is not None
            return BlasFunction(address, bits)
    return None


def blas_threads() -> int | None:
    """Threads that a matrix product may use; None where the library cannot be asked."""
    get = library_function(_GET)
    return None if get is None else int(get())


def set_blas_threads(count: int) -> None:
    """For this process; without effect on a BLAS that cannot be told."""
    function = library_function(_SET)
    if function is not None:
        function(count)


def reserve_work_buffers(callers: int) -> int:
    """Let OpenBLAS map room for so many threads that multiply at a time, which it would do when they first meet: in the
    middle of some step. How many there are room for; 0 for a BLAS that cannot be told. Room stays, so that
    it costs no more than these threads would cost in the end.
    """
    take, give = library_function(("blas_memory_alloc",)), library_function(("blas_memory_free",))
    if take is None or give is None:
        return 0
    take.restype, take.argtypes = ctypes.c_void_p, (ctypes.c_int,)
    give.restype, give.argtypes = None, (ctypes.c_void_p,)
    taken = [take(1) for _ in range(callers)]
    for buffer in reversed(taken):
        give(buffer)
    return len(set(taken))


class BlasThreads:
    """A block with so many threads per matrix product, which may be entered again when it has been left."""

    def __init__(self, count: int) -> None:
        self._count = self._before = count
        self._get, self._set = library_function(_GET), library_function(_SET)

    def __enter__(self) -> None:
        if self._get is not None and self._set is not None:
            self._before = self._get()
            if self._before != self._count:
                self._set(self._count)

    def __exit__(self, *_: object) -> None:
        if self._before != self._count and self._set is not None:
            self._set(self._before)
