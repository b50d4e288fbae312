"""Attention fusions by Triton kernels, which keep no score matrix in memory."""

from __future__ import annotations

from runtime.gpu.libraries.sequence import SequenceBuilder, in_sequence
from runtime.gpu.libraries.triton_call import TritonCall
from runtime.gpu.triton.attention import attention_kernels
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.program.records.attention import AttentionKernel


@in_sequence(AttentionKernel)
def attention(kernel: AttentionKernel, builder: SequenceBuilder) -> bool:
    """Add the launches of the Triton kernels of ``kernel`` to ``builder``. Returns False if there are none."""
    arrays = (*builder.operands, *builder.results)
    try:
        launches = attention_kernels(
            kernel.instruction.to_apply,
            [array.view for array in builder.operands],
            [array.view for array in builder.results],
            tf32=builder.options.tf32,
        )
    except NoTritonKernelError:
        return False
    for launch in launches:
        builder.call(TritonCall(kernel, launch), *arrays)
    return True
