"""Pieces of kernels that the threads of one device share (runtime/cpu/sharing), as thunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.cpu.prediction.work import NoAllocation
from runtime.cpu.sharing.cut_kernels import cut_into
from runtime.program.kernel import KernelArrays
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def pieces_of(thunk: KernelThunk, count: int) -> list[KernelThunk]:
    """Return the pieces into which ``thunk`` is cut, at most ``count``, or ``thunk`` alone."""
    memory = _StandIn()
    operands, results, scratch = (
        tuple(map(memory.array, views)) for views in (thunk.operands, thunk.results, thunk.scratch)
    )
    pieces = cut_into(thunk.kernel, KernelArrays(operands, results, scratch), count)
    if not pieces:
        return [thunk]
    return [
        KernelThunk(
            thunk.name,
            kernel,
            memory.views(arrays.operands),
            memory.views(arrays.results),
            memory.views(arrays.scratch),
        )
        for kernel, arrays in pieces
    ]


@dataclass
class _StandIn:
    """Uninitialized memory for a program that is not loaded.

    Cutting a kernel reads addresses and strides, no elements.
    """

    blocks: dict[BufferSlice, NDArray] = field(default_factory=dict)

    def array(self, array: ArrayView) -> NDArray:
        block = self.blocks.get(array.slice)
        if block is None:
            block = self.blocks[array.slice] = np.empty(array.slice.size, np.uint8)
        view = array.view
        return np.ndarray(view.dims, view.element_type.numpy, block.data, view.offset, view.strides)

    def views(self, arrays: Sequence[NDArray]) -> tuple[ArrayView, ...]:
        return tuple(map(self._view_of, arrays))

    def _view_of(self, array: NDArray) -> ArrayView:
        """Return ``array`` as a view of the program's memory, or of NoAllocation.PIECES if it is own scratch."""
        kind = PrimitiveType.from_numpy(array.dtype)
        at = array.ctypes.data
        for where, block in self.blocks.items():
            first = at - block.ctypes.data
            if 0 <= first < max(block.size, 1):
                return ArrayView(where, StridedView(kind, array.shape, array.strides, first))
        scratch = BufferSlice(NoAllocation.PIECES, 0, array.nbytes)
        return ArrayView(scratch, StridedView(kind, array.shape, array.strides))
