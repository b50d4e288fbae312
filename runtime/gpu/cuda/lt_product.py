"""Matrix product by cuBLASLt: its descriptors, candidate algorithms, and call."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from runtime.gpu.cuda.blas_types import COMPUTE, COMPUTE_32F_FAST_TF32, TYPES
from runtime.gpu.cuda.lt_api import ALGORITHM_BYTES, Heuristic, call
from runtime.gpu.libraries.gemm import CallEpilogue, GemmCall, GemmMatrix
from runtime.program.gemm_epilogue import Activation
from spmd.shape import PrimitiveType

# Attributes, by their numbers in cublasLt.h.
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_AUX_POINTER, _AUX_LD, _AUX_STEP = 11, 12, 13
_SCALE_POINTERS = 17, 18
_BATCH_COUNT, _BATCH_STEP = 5, 6
_MOST_WORKSPACE, _REDUCTION_SCHEMES, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
#: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: split-k partial sums are added in the type of the accumulators.
_IN_COMPUTE_TYPE = 2
_MOST_CANDIDATES = 16
# cublasLtEpilogue_t, by bits.
_BIAS, _AUX = 4, 128
_ACTIVATIONS = {
    None: 0,
    Activation.RELU: 2,
    Activation.GELU: 32,
    Activation.GELU_GRADIENT: 64,
}


class LtProduct:
    """Descriptors of the product ``gemm``, which must not have ``offsets``.

    Its matrices are aligned to ``alignment`` bytes. bias, aux: addresses of the bias vector and of the arguments of
    gelu of its epilogue, 0 if it has none. scales: addresses of the f32 numbers that scale its operands, which may be
    those of either operand. The object owns the descriptors.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        handle: ctypes.c_void_p,
        gemm: GemmCall,
        alignment: int,
        bias: int = 0,
        aux: int = 0,
        scales: tuple[int, ...] = (),
    ) -> None:
        self._library, self._handle, self._gemm = library, handle, gemm
        self._alignment = alignment
        compute = COMPUTE_32F_FAST_TF32 if gemm.tf32 else COMPUTE[gemm.compute]
        self._operation = self._made("MatmulDesc", compute, TYPES[gemm.compute])
        for attribute, matrix in ((_TRANSPOSE_A, gemm.a), (_TRANSPOSE_B, gemm.b)):
            transposed = ctypes.c_int32(int(matrix.transposed))
            self._set("MatmulDesc", self._operation, attribute, transposed)
        self._a = self._layout(gemm.a, gemm.m, gemm.k, gemm.a_kind)
        self._b = self._layout(gemm.b, gemm.k, gemm.n, gemm.b_kind)
        self._c = self._layout(gemm.c, gemm.m, gemm.n, gemm.result)
        epilogue = gemm.epilogue or CallEpilogue()
        self._alpha, self._beta = (
            np.array(value, gemm.compute.numpy) for value in (epilogue.alpha, epilogue.beta)
        )
        self._describe_epilogue(epilogue, bias, aux)
        for attribute, address in zip(_SCALE_POINTERS, scales, strict=False):
            self._set("MatmulDesc", self._operation, attribute, ctypes.c_uint64(address))

    def candidates(self, workspace_bytes: int) -> Iterator[bytes]:
        """Yield algorithms that the library recommends, the fastest by its own estimate first.

        workspace_bytes: largest workspace that an algorithm may use.
        """
        preference = self._made("MatmulPreference")
        wanted: list[tuple[int, ctypes.c_uint64 | ctypes.c_uint32]] = [
            (_MOST_WORKSPACE, ctypes.c_uint64(workspace_bytes)),
            (_REDUCTION_SCHEMES, ctypes.c_uint32(_IN_COMPUTE_TYPE)),
        ]
        wanted += [(one, ctypes.c_uint32(self._alignment)) for one in _ALIGNMENTS]
        for attribute, value in wanted:
            self._set("MatmulPreference", preference, attribute, value)
        found, count = (Heuristic * _MOST_CANDIDATES)(), ctypes.c_int()
        call(
            self._library,
            "cublasLtMatmulAlgoGetHeuristic",
            *(self._handle, self._operation, self._a, self._b, self._c, self._c, preference),
            *(_MOST_CANDIDATES, found, ctypes.byref(count)),
        )
        for one in found[: count.value]:
            if one.state == 0:
                yield bytes(one.algorithm)

    def accepts(self, algorithm: bytes, workspace_bytes: int) -> bool:
        """Return whether ``algorithm`` is valid for this product and needs at most ``workspace_bytes`` of workspace.

        ``algorithm`` may be untrusted data from a file.
        """
        if len(algorithm) != ALGORITHM_BYTES:
            return False
        heuristic = Heuristic()
        status = self._library.cublasLtMatmulAlgoCheck(
            *(self._handle, self._operation, self._a, self._b, self._c, self._c),
            *(algorithm, ctypes.byref(heuristic)),
        )
        return not status and heuristic.workspace <= workspace_bytes

    def bound(
        self,
        addresses: tuple[int, int, int],
        algorithm: bytes,
        workspace: int,
        num_bytes: int,
        addend: int = 0,
    ) -> Callable[[int], None]:
        """Return a function of a CUDA stream's handle that computes the product of a, b and c at ``addresses``.

        workspace, num_bytes: address and size of the workspace. addend: address of the addend of the epilogue; 0 if
        there is none, or if it is c.
        """
        a, b, c = addresses
        # The bound method keeps this object alive, which owns all that the arguments point to.
        return partial(
            self._run,
            self._alpha.ctypes.data,
            *(a, self._a, b, self._b, self._beta.ctypes.data, addend or c, self._c, c, self._c),
            *(algorithm, workspace, num_bytes),
        )

    def _run(self, *arguments: object) -> None:
        call(self._library, "cublasLtMatmul", self._handle, self._operation, *arguments)

    def _describe_epilogue(self, epilogue: CallEpilogue, bias: int, aux: int) -> None:
        """Set bias, activation and its arguments. The library chooses algorithms by the alignment of addresses."""
        chosen = _ACTIVATIONS[epilogue.activation] | _BIAS * epilogue.bias | _AUX * epilogue.aux
        wanted: list[tuple[int, ctypes.c_uint32 | ctypes.c_uint64 | ctypes.c_int64]] = []
        if chosen:
            wanted.append((_EPILOGUE, ctypes.c_uint32(chosen)))
        if epilogue.bias:
            wanted.append((_BIAS_POINTER, ctypes.c_uint64(bias)))
        if epilogue.aux:
            wanted.append((_AUX_POINTER, ctypes.c_uint64(aux)))
            wanted.append((_AUX_LD, ctypes.c_int64(self._gemm.c.leading)))
            if self._gemm.count > 1:
                wanted.append((_AUX_STEP, ctypes.c_int64(self._gemm.c.step)))
        for attribute, value in wanted:
            self._set("MatmulDesc", self._operation, attribute, value)

    def _layout(
        self, matrix: GemmMatrix, rows: int, columns: int, kind: PrimitiveType
    ) -> ctypes.c_void_p:
        stored = (columns, rows) if matrix.transposed else (rows, columns)
        layout = self._made("MatrixLayout", TYPES[kind], *stored, matrix.leading)
        if self._gemm.count > 1:
            count, step = ctypes.c_int32(self._gemm.count), ctypes.c_int64(matrix.step)
            self._set("MatrixLayout", layout, _BATCH_COUNT, count)
            self._set("MatrixLayout", layout, _BATCH_STEP, step)
        return layout

    def _made(self, kind: str, *arguments: object) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        call(self._library, f"cublasLt{kind}Create", ctypes.byref(made), *arguments)
        weakref.finalize(self, getattr(self._library, f"cublasLt{kind}Destroy"), made)
        return made

    def _set(
        self,
        kind: str,
        of: ctypes.c_void_p,
        attribute: int,
        value: ctypes.c_int32 | ctypes.c_int64 | ctypes.c_uint32 | ctypes.c_uint64,
    ) -> None:
        name = f"cublasLt{kind}SetAttribute"
        call(self._library, name, of, attribute, ctypes.byref(value), ctypes.sizeof(value))
