"""Element and accumulator types of cuBLAS and cuBLASLt, as the constants of cublas_api.h and library_types.h."""

from __future__ import annotations

from cupy.cuda import runtime

from spmd.shape import PrimitiveType

# CuPy has no names for these.
_BF16, _F8E4M3, _F8E5M2 = 14, 28, 29
_COMPUTE_32F, _COMPUTE_64F = 68, 70
COMPUTE_32F_FAST_TF32 = 77

TYPES = {
    PrimitiveType.F32: runtime.CUDA_R_32F,
    PrimitiveType.F64: runtime.CUDA_R_64F,
    PrimitiveType.F16: runtime.CUDA_R_16F,
    PrimitiveType.BF16: _BF16,
    PrimitiveType.C64: runtime.CUDA_C_32F,
    PrimitiveType.C128: runtime.CUDA_C_64F,
    PrimitiveType.F8E4M3FN: _F8E4M3,
    PrimitiveType.F8E5M2: _F8E5M2,
}
COMPUTE = {
    PrimitiveType.F32: _COMPUTE_32F,
    PrimitiveType.F64: _COMPUTE_64F,
    PrimitiveType.C64: _COMPUTE_32F,
    PrimitiveType.C128: _COMPUTE_64F,
}
