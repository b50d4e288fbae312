"""Ragged products by Triton kernels, which read the sizes of groups on the GPU."""

from __future__ import annotations

from runtime.gpu.libraries.sequence import SequenceBuilder, in_sequence
from runtime.gpu.libraries.triton_call import TritonCall
from runtime.gpu.triton.ragged_dot import ragged_kernel
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.triton.saved_code import has_trusted_code
from runtime.program.records.ragged_dot import RaggedDotKernel


@in_sequence(RaggedDotKernel)
def ragged_dot(kernel: RaggedDotKernel, builder: SequenceBuilder) -> bool:
    """Add the launch of the Triton kernel of ``kernel`` to ``builder``. Returns False if there is none."""
    operands, (result,) = builder.operands, builder.results
    try:
        launch = ragged_kernel(
            kernel.instruction,
            [array.view for array in operands],
            result.view,
            tf32=builder.options.tf32,
        )
    except NoTritonKernelError:
        return False
    if not builder.options.triton and not has_trusted_code(launch):
        return False
    builder.call(TritonCall(kernel, launch), *operands, result)
    return True
