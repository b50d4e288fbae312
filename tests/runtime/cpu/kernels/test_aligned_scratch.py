"""Scratch that kernels allocate has the alignment of a device's memory."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.communicator.actions.shared_buffers import private_array
from runtime.cpu.kernels.convolution.convolution_call import _allocated
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType


@pytest.mark.parametrize("size", [1, 3, 100, 3744, 1 << 18])
def test_scratch_is_aligned(size: int) -> None:
    """Code for a tile unit stores vectors of 64 bytes; NumPy's memory has multiples of 16, and such a store crashes."""
    kept = [private_array((size,), np.dtype(np.float32)) for _ in range(20)]
    view = StridedView.dense(ArrayShape(PrimitiveType.F32, (size,)))
    kept += [_allocated(view)[0] for _ in range(20)]
    assert {one.ctypes.data % 64 for one in kept} == {0}
    assert all(one.shape == (size,) and not one.any() for one in kept)
