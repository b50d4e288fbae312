"""Predicted work of convolutions that are compiled for a GPU: that of the convolution, and no memory between the parts."""

from __future__ import annotations

import pytest

from runtime.cpu.prediction.work import Work, work_of
from runtime.executable import Executable
from runtime.program.records.convolution import PanelConvolutionKernel
from runtime.program.records.convolution_call import ConvolutionCallKernel
from runtime.program.thunks import KernelThunk, traverse
from tests.runtime.cpu.prediction.test_step import MACHINE
from tests.runtime.gpu.product_epilogues import compiled_for_gpu
from tests.runtime.programs import compiled

CONVOLUTION = """HloModule convolution

ENTRY e {
  x = f32[2,8,8,4] parameter(0)
  w = f32[6,3,3,4] parameter(1)
  b = f32[6] parameter(2)
  ROOT y = f32[2,8,8,6] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f
}
"""
RECTIFIED = CONVOLUTION.replace("ROOT y", "y").replace(
    "dim_labels=b01f_o01i->b01f\n",
    """dim_labels=b01f_o01i->b01f
  bs = f32[2,8,8,6] broadcast(b), dimensions={3}
  s = f32[2,8,8,6] add(y, bs)
  c = f32[] constant(0)
  cs = f32[2,8,8,6] broadcast(c), dimensions={}
  ROOT r = f32[2,8,8,6] maximum(s, cs)
""",
)


def work(executable: Executable, kind: type) -> Work:
    (thunk,) = (
        one
        for one in traverse(executable.program.thunks)
        if isinstance(one, KernelThunk) and isinstance(one.kernel, kind)
    )
    return work_of(thunk, MACHINE)


@pytest.mark.parametrize("text", [CONVOLUTION, RECTIFIED], ids=["alone", "with an epilogue"])
def test_the_convolution_counts(text: str) -> None:
    alone = work(compiled(CONVOLUTION), PanelConvolutionKernel)
    call = work(compiled_for_gpu(text), ConvolutionCallKernel)
    assert alone.compute > 0
    assert alone.compute <= call.compute < 1.5 * alone.compute
    bias = 4 * 6 if text is RECTIFIED else 0
    touched = 4 * (2 * 8 * 8 * 4 + 6 * 3 * 3 * 4 + 2 * 8 * 8 * 6) + bias
    assert sum(access.size for access in call.accesses) == touched
