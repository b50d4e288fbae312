"""Epilogues that cuDNN computes in the call of a convolution: y = act(conv(x, w) + z + bias).

The scalar program of an epilogue is evaluated as that of a matrix product is. cuDNN accumulates in f32 and rounds once,
to the type of y. The images have features last, so a bias lies along the last dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.program.gemm_epilogue import Activation, GemmEpilogue, gemm_epilogue
from runtime.program.records.loop import LoopLeaf
from runtime.program.scalar_program import ScalarProgram
from spmd.shape import PrimitiveType

#: Types of x, w, z, bias and y, one for all, of the convolutions that cuDNN computes with epilogues: tensor cores
#: multiply them.
_TYPES = frozenset({PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32})


def convolution_epilogue(
    program: ScalarProgram, leaves: Sequence[LoopLeaf], convolution: int, features: int
) -> GemmEpilogue | None:
    """Return the epilogue that ``program`` computes, or None if cuDNN computes none such. Its factors are 1.

    leaves: what the parameters of the program read at each index of the result. The leaf that reads operand number
    ``convolution`` reads the elements of the convolution. features: the last dimension of the result.
    """
    found = gemm_epilogue(program, leaves, convolution, features)
    if found is None or found.alpha != 1.0 or (found.addend is not None and found.beta != 1.0):
        return None
    return found if found.activation in (None, Activation.RELU) and not found.scales else None


def is_computed(kinds: tuple[PrimitiveType, ...], result: PrimitiveType, *, tf32: bool) -> bool:
    """Return whether cuDNN computes epilogues of convolutions whose arrays are of ``kinds``, with such a result.

    tf32: f32 operands may be rounded to TF32, without which tensor cores do not multiply them.
    """
    return result in _TYPES and set(kinds) == {result} and (tf32 or result is not PrimitiveType.F32)
