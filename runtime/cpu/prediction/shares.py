"""Kernels that threads of one device share: the pieces that runtime/cpu/sharing cuts a thunk's kernel into, as
thunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.cpu.prediction.work import NoAllocation
from runtime.cpu.sharing.cut_kernels import cut_into
from runtime.program.kernel import KernelArrays
from runtime.program.strides import StridedView
from runtime.program.thunks.kernel import KernelThunk
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


def pieces_of(thunk: KernelThunk, count: int) -> list[KernelThunk]:
    """``thunk`` alone where it is not cut."""
    memory = _Stand()
    operands, results, scratch = (
        tuple(map(memory.array, places))
        for places in (thunk.operands, thunk.results, thunk.scratch)
    )
    pieces = cut_into(thunk.kernel, KernelArrays(operands, results, scratch), count)
    if not pieces:
        return [thunk]
    return [
        KernelThunk(
            thunk.name,
            kernel,
            memory.places(arrays.operands),
            memory.places(arrays.results),
            memory.places(arrays.scratch),
        )
        for kernel, arrays in pieces
    ]


@dataclass
class _Stand:
    """Arrays at places of a program that is not loaded: cutting looks at where they lie, never at what they hold."""

    blocks: dict[BufferSlice, NDArray] = field(default_factory=dict)

    def array(self, place: ArrayView) -> NDArray:
        block = self.blocks.get(place.slice)
        if block is None:
            block = self.blocks[place.slice] = np.empty(place.slice.size, np.uint8)
        view = place.view
        return np.ndarray(view.dims, view.element_type.numpy, block.data, view.offset, view.strides)

    def places(self, arrays: Sequence[NDArray]) -> tuple[ArrayView, ...]:
        return tuple(map(self._place, arrays))

    def _place(self, array: NDArray) -> ArrayView:
        """Parts of what was asked for; a piece's own scratch is an allocation that nothing else has."""
        kind = PrimitiveType.from_numpy(array.dtype)
        at = array.ctypes.data
        for where, block in self.blocks.items():
            first = at - block.ctypes.data
            if 0 <= first < max(block.size, 1):
                return ArrayView(where, StridedView(kind, array.shape, array.strides, first))
        whole = BufferSlice(NoAllocation.PIECES, 0, array.nbytes)
        return ArrayView(whole, StridedView(kind, array.shape, array.strides))
