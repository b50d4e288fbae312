"""Does a program's run agree with the evaluator, and which kernels is it made of?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.executable import Executable
from runtime.program.kernel import Kernel
from runtime.program.thunks import KernelThunk, traverse
from spmd.evaluator.evaluator import evaluate
from spmd.literal import NDArray
from tests.runtime.programs.build import compiled, module_of, random_inputs


def assert_agrees(
    text: str, *, inputs: Sequence[NDArray] | None = None, rtol: float = 0.0
) -> Executable:
    """Run the program on one device beside the evaluator. rtol: relative and absolute; 0 stands for the same bits."""
    executable = compiled(text)
    if inputs is None:
        inputs = random_inputs(executable.module)
    for got, want in zip(executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True):
        assert got.dtype == want.dtype
        if rtol:
            np.testing.assert_allclose(
                got.astype(np.complex128), want.astype(np.complex128), rtol=rtol, atol=rtol
            )
        else:
            assert got.tobytes() == want.tobytes()
    return executable


def kernels_of(executable: Executable) -> list[Kernel]:
    """Return the kernels in the order of the program's thunks."""
    thunks = traverse(executable.program.thunks)
    return [thunk.kernel for thunk in thunks if isinstance(thunk, KernelThunk)]
