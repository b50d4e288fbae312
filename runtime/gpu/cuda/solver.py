"""Factorizations through cuSOLVER: one call for each matrix, or one for a batch where there is such a function."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from cupy.cuda import runtime

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.solver_api import call, function_for, load_cusolver
from runtime.gpu.cuda.triangular_solve import LETTERS, LOWER, UPPER, addresses_of
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.linalg_work import SolverFunction, SolverWork, batch_of
from runtime.gpu.views import DeviceView
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

_TRIANGLES = {"L": LOWER, "U": UPPER}
_WITH_VECTORS = 1  # CUSOLVER_EIG_MODE_VECTOR
#: A batch of larger matrices takes a call of potrf for each.
_BATCHED_ROWS = 1024

_TYPES = {
    PrimitiveType.F32: runtime.CUDA_R_32F,
    PrimitiveType.F64: runtime.CUDA_R_64F,
    PrimitiveType.C64: runtime.CUDA_C_32F,
    PrimitiveType.C128: runtime.CUDA_C_64F,
}


@dataclass
class _Batch:
    """Matrices of one work. addresses: of each array those of its part for each matrix. kept: memory of arguments."""

    work: SolverWork
    count: int
    rows: int
    columns: int
    addresses: list[list[int]]
    kept: list[object] = field(default_factory=list)

    @property
    def kind(self) -> PrimitiveType:
        return self.work.arrays[0].view.element_type

    @property
    def flag(self) -> str:
        return self.work.call.flag


class Cusolver:
    """One cuSOLVER handle, used by one stream at a time, and the room that its functions ask for."""

    def __init__(
        self,
        allocate: Callable[[int], GpuBlock],
        write: Callable[[int, NDArray], None],
        captures: CaptureLock,
    ) -> None:
        """``write``: copies an array to an address of the device, synchronously."""
        self._allocate, self._write, self._captures = allocate, write, captures
        self._library = load_cusolver()
        handle = ctypes.c_void_p()
        call(self._library, "cusolverDnCreate", ctypes.byref(handle))
        self._handle = handle
        weakref.finalize(self, self._library.cusolverDnDestroy, handle)
        self._stream = -1
        self._room: GpuBlock | None = None
        self._room_bytes = 0

    def load(self, work: SolverWork) -> Enqueue:
        count, rows, columns = batch_of(work.arrays[0])
        batch = _Batch(work, count, rows, columns, [_parts(view, count) for view in work.arrays])
        calls = _FUNCTIONS[work.call.function](self, batch)

        def enqueue(stream: GpuStream, _: object = batch) -> None:
            # Functions may wait for the device, or allocate.
            with self._captures:
                if stream.ptr != self._stream:
                    self._stream = stream.ptr
                    call(self._library, "cusolverDnSetStream", self._handle, stream.ptr)
                for one in calls:
                    one()

        return enqueue

    def _call(self, function: str, *arguments: object) -> None:
        call(self._library, function, self._handle, *arguments)

    def _elements(self, function: str, *arguments: object) -> int:
        """Return how many elements of room ``function``, one that ends in _bufferSize, asks for."""
        found = ctypes.c_int()
        self._call(function, *arguments, ctypes.byref(found))
        return found.value

    def _with_room(self, num_bytes: int, batch: _Batch) -> int:
        """Return the address of room for one call at a time. Earlier works keep theirs."""
        if self._room is None or num_bytes > self._room_bytes:
            self._room, self._room_bytes = self._allocate(num_bytes), num_bytes
        batch.kept.append(self._room)
        return self._room.address

    def _pointers(self, addresses: Sequence[int], batch: _Batch) -> int:
        """Return the address of a device array of ``addresses``."""
        array = np.array(addresses, np.uint64)
        block = self._allocate(array.nbytes)
        self._write(block.address, array)
        batch.kept.append(block)
        return block.address

    def potrf(self, batch: _Batch) -> list[Callable[[], None]]:
        matrices, infos = batch.addresses
        letter, n, triangle = LETTERS[batch.kind], batch.rows, _TRIANGLES[batch.flag]
        if batch.count > 1 and n <= _BATCHED_ROWS:
            name = function_for(letter, "potrfBatched")
            pointers = self._pointers(matrices, batch)
            arguments = (triangle, n, pointers, n, infos[0], batch.count)
            return [partial(self._call, name, *arguments)]
        size = function_for(letter, "potrf_bufferSize")
        elements = self._elements(size, triangle, n, matrices[0], n)
        room = self._with_room(elements * batch.kind.byte_size, batch)
        name = function_for(letter, "potrf")
        return [
            partial(self._call, name, triangle, n, a, n, room, elements, info)
            for a, info in zip(matrices, infos, strict=True)
        ]


def _parts(view: DeviceView, count: int) -> list[int]:
    """Return the address of each matrix's part of a packed array."""
    found: list[int] = addresses_of(view.first, count, view.view.byte_size // count).tolist()
    return found


_FUNCTIONS = {
    SolverFunction.POTRF: Cusolver.potrf,
}
