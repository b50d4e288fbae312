"""Record of one elementwise operation, and the scalar program that it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram


@dataclass(frozen=True)
class NativeElementwiseKernel(Kernel):
    """results[0] = the operation's value on operands of the result's sizes, which may be its memory."""

    signature: ElementSignature


@cache
def one_operation(signature: ElementSignature) -> ScalarProgram:
    count = len(signature.operands)
    return ScalarProgram(signature.operands, (ScalarOp(signature, tuple(range(count))),), (count,))
