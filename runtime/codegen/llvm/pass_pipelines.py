"""Names of the pass pipelines for IR: LLVM's full optimization, or what handwritten code needs (ir_compiler.py)."""

from __future__ import annotations

from enum import Enum


class Passes(Enum):
    """Optimization level of IR. All levels inline functions marked ``alwaysinline``."""

    TIDY = "tidy"
    """Values leave the stack, instructions and branches are combined; loops stay as they are written. For code that is
    written as it should run, including its vectors. Takes a tenth of the time of the other levels.
    """
    CALL = "call"
    """TIDY, and machine code is made without optimization, in a fifth of the time. For code that calls other code,
    such as the loop over thunks: 15.7 ns a thunk instead of 14.7 (benchmarks/native/dispatch.py).
    """
    VECTORIZE = "vectors"
    """Loops over elements become loops over vectors, none is unrolled: memory limits most of them. On x86
    with AVX2 or AVX-512 the project's vectorizer writes them, and they are only tidied (vectorizer/loops.py).
    """
    UNROLL = "unroll"
    """VECTORIZE, and loops are unrolled: for those that compute more than they load."""

    @property
    def codegen_level(self) -> int:
        """The level of LLVM's target machine: 0 selects instructions one by one; 1 to 3 take equally long."""
        return 0 if self is Passes.CALL else 3
