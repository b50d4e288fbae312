"""Factorizations by cuSOLVER: one call for a batch if cuSOLVER has a batched function, else one for each matrix."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

import numpy as np
from cupy.cuda import runtime

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.handles import destroy_after
from runtime.gpu.cuda.solver_api import (
    call,
    function_for,
    has_batched_eigenvalues,
    load_cusolver,
)
from runtime.gpu.cuda.triangular_solve import LETTERS, LOWER, UPPER, addresses_of
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.libraries.linalg_work import SolverFunction, SolverWork, batch_of
from runtime.gpu.views import DeviceView
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import COMPLEX_PARTS, PrimitiveType

_TRIANGLES = {"L": LOWER, "U": UPPER}
_WITHOUT_VECTORS, _WITH_VECTORS = 0, 1  # cusolverEigMode_t
#: Most rows of the matrices that potrfBatched factors; for larger ones potrf is called for each matrix.
_BATCHED_ROWS = 1024

_TYPES = {
    PrimitiveType.F32: runtime.CUDA_R_32F,
    PrimitiveType.F64: runtime.CUDA_R_64F,
    PrimitiveType.C64: runtime.CUDA_C_32F,
    PrimitiveType.C128: runtime.CUDA_C_64F,
}


@dataclass
class _Batch:
    """Batch of ``count`` matrices of one ``work``.

    addresses: for each array of the work, the address of each matrix's part. retained: memory that the calls use, kept
    alive with the batch.
    """

    work: SolverWork
    count: int
    rows: int
    columns: int
    addresses: list[list[int]]
    retained: list[object] = field(default_factory=list)

    @property
    def kind(self) -> PrimitiveType:
        return self.work.arrays[0].view.element_type

    @property
    def flag(self) -> str:
        return self.work.call.flag

    def function(self, name: str) -> str:
        """Return the C name of the function ``name`` for the element type of the matrices."""
        return function_for(LETTERS[self.kind], name)


class Cusolver:
    """cuSOLVER handle of one device, used by one stream at a time, and the workspace of its functions.

    The methods named after a function of LAPACK return the calls that compute it for a batch.
    """

    def __init__(
        self,
        allocate: Callable[[int], GpuBlock],
        write: Callable[[int, NDArray], None],
        captures: CaptureLock,
    ) -> None:
        """Create the handle. Raises CusolverError if cuSOLVER is not found or fails.

        allocate: allocates device memory. write: copies a host array to a device address, synchronously. captures:
        capture lock of the GPU, held during calls.
        """
        self._allocate, self._write, self._captures = allocate, write, captures
        self._library = load_cusolver()
        handle = ctypes.c_void_p()
        call(self._library, "cusolverDnCreate", ctypes.byref(handle))
        self._handle = handle
        destroy_after(self, captures, partial(self._library.cusolverDnDestroy, handle))
        self._stream = -1
        self._made: dict[str, ctypes.c_void_p] = {}
        self._room: GpuBlock | None = None
        self._room_bytes = 0

    def load(self, work: SolverWork) -> Enqueue:
        """Bind ``work`` to the addresses of its arrays. Raises CusolverError if a workspace size cannot be computed."""
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

    def _room_for(self, batch: _Batch, name: str, *arguments: object) -> tuple[int, int]:
        """Return (address, number of elements) of a workspace for function ``name``.

        arguments: arguments of its _bufferSize function, which returns the number of elements.
        """
        found = ctypes.c_int()
        self._call(batch.function(f"{name}_bufferSize"), *arguments, ctypes.byref(found))
        return self._with_room(found.value * batch.kind.byte_size, batch), found.value

    def _with_room(self, num_bytes: int, batch: _Batch) -> int:
        """Return the address of a workspace of at least ``num_bytes``, which all works share. ``batch`` retains it."""
        if self._room is None or num_bytes > self._room_bytes:
            self._room, self._room_bytes = self._allocate(num_bytes), num_bytes
        batch.retained.append(self._room)
        return self._room.address

    def _pointers(self, addresses: Sequence[int], batch: _Batch) -> int:
        """Write ``addresses`` to a new device array, which ``batch`` retains, and return its address."""
        array = np.array(addresses, np.uint64)
        block = self._allocate(array.nbytes)
        self._write(block.address, array)
        batch.retained.append(block)
        return block.address

    def _object(self, function: str) -> ctypes.c_void_p:
        """Return the parameter object that ``function`` creates. All works share it, since it has default values."""
        if function not in self._made:
            made = ctypes.c_void_p()
            call(self._library, function, ctypes.byref(made))
            self._made[function] = made
        return self._made[function]

    def potrf(self, batch: _Batch) -> list[Callable[[], None]]:
        """Return the calls for Cholesky factorizations: one batched call if the matrices are small."""
        matrices, infos = batch.addresses
        n, triangle = batch.rows, _TRIANGLES[batch.flag]
        if batch.count > 1 and n <= _BATCHED_ROWS:
            pointers = self._pointers(matrices, batch)
            arguments = (triangle, n, pointers, n, infos[0], batch.count)
            return [partial(self._call, batch.function("potrfBatched"), *arguments)]
        room = self._room_for(batch, "potrf", triangle, n, matrices[0], n)
        name = batch.function("potrf")
        return [
            partial(self._call, name, triangle, n, a, n, *room, info)
            for a, info in zip(matrices, infos, strict=True)
        ]

    def getrf(self, batch: _Batch) -> list[Callable[[], None]]:
        m, n = batch.rows, batch.columns
        room, _ = self._room_for(batch, "getrf", m, n, batch.addresses[0][0], m)
        name = batch.function("getrf")
        return [
            partial(self._call, name, m, n, a, m, room, pivots, info)
            for a, pivots, info in zip(*batch.addresses, strict=True)
        ]

    def geqrf(self, batch: _Batch) -> list[Callable[[], None]]:
        m, n = batch.rows, batch.columns
        room = self._room_for(batch, "geqrf", m, n, batch.addresses[0][0], m)
        name = batch.function("geqrf")
        return [
            partial(self._call, name, m, n, a, m, tau, *room, info)
            for a, tau, info in zip(*batch.addresses, strict=True)
        ]

    def orgqr(self, batch: _Batch) -> list[Callable[[], None]]:
        m, n, k = batch.rows, batch.columns, batch.work.arrays[1].view.dims[-1]
        matrices, taus, _ = batch.addresses
        room = self._room_for(batch, "orgqr", m, n, k, matrices[0], m, taus[0])
        name = batch.function("orgqr")
        return [
            partial(self._call, name, m, n, k, a, m, tau, *room, info)
            for a, tau, info in zip(*batch.addresses, strict=True)
        ]

    def syevd(self, batch: _Batch) -> list[Callable[[], None]]:
        """Return the calls for eigenvalues and eigenvectors: one batched call if cuSOLVER has it."""
        if batch.count > 1 and has_batched_eigenvalues(self._library):
            return [self._batched_eigenvalues(batch)]
        n, flags = batch.rows, (_WITH_VECTORS, _TRIANGLES[batch.flag])
        matrices, values, _ = batch.addresses
        room = self._room_for(batch, "syevd", *flags, n, matrices[0], n, values[0])
        name = batch.function("syevd")
        return [
            partial(self._call, name, *flags, n, a, n, own, *room, info)
            for a, own, info in zip(*batch.addresses, strict=True)
        ]

    def _batched_eigenvalues(self, batch: _Batch) -> Callable[[], None]:
        n, kind = batch.rows, batch.kind
        (a, *_), (values, *_), (info, *_) = batch.addresses
        arguments = (
            *(self._object("cusolverDnCreateParams"), _WITH_VECTORS, _TRIANGLES[batch.flag], n),
            *(_TYPES[kind], a, n, _TYPES[COMPLEX_PARTS.get(kind, kind)], values, _TYPES[kind]),
        )
        on_device, on_host = ctypes.c_size_t(), ctypes.c_size_t()
        name = "cusolverDnXsyevBatched"
        sizes = ctypes.byref(on_device), ctypes.byref(on_host)
        self._call(f"{name}_bufferSize", *arguments, *sizes, batch.count)
        host = np.zeros(max(on_host.value, 1), np.uint8)
        batch.retained.append(host)
        room = self._with_room(on_device.value, batch), on_device.value
        return partial(
            self._call, name, *arguments, *room, host.ctypes.data, on_host.value, info, batch.count
        )

    def gesvd(self, batch: _Batch) -> list[Callable[[], None]]:
        m, n, job = batch.rows, batch.columns, ord(batch.flag)
        matrices, values, us, vhs, infos = batch.addresses
        room = self._room_for(batch, "gesvd", m, n)
        name, of_vh = batch.function("gesvd"), min(m, n) if batch.flag == "S" else n
        return [
            partial(self._call, name, job, job, m, n, a, m, s, u, m, vh, of_vh, *room, None, info)
            for a, s, u, vh, info in zip(matrices, values, us, vhs, infos, strict=True)
        ]

    def gesvdj(self, batch: _Batch) -> list[Callable[[], None]]:
        """Return the one call for singular value decompositions of a batch of small matrices (gesvdjBatched)."""
        m, n = batch.rows, batch.columns
        job = _WITHOUT_VECTORS if batch.flag == "N" else _WITH_VECTORS
        a, s, u, v, info = (own[0] for own in batch.addresses)
        wanted = self._object("cusolverDnCreateGesvdjInfo")
        arguments = (job, m, n, a, m, s, u, m, v, n)
        found = ctypes.c_int()
        size = batch.function("gesvdjBatched_bufferSize")
        self._call(size, *arguments, ctypes.byref(found), wanted, batch.count)
        room = self._with_room(found.value * batch.kind.byte_size, batch), found.value
        name = batch.function("gesvdjBatched")
        return [partial(self._call, name, *arguments, *room, info, wanted, batch.count)]


def _parts(view: DeviceView, count: int) -> list[int]:
    """Return the addresses of the ``count`` equal parts of a packed array, one for each matrix."""
    found: list[int] = addresses_of(view.first, count, view.view.byte_size // count).tolist()
    return found


_FUNCTIONS = {
    SolverFunction.POTRF: Cusolver.potrf,
    SolverFunction.GETRF: Cusolver.getrf,
    SolverFunction.GEQRF: Cusolver.geqrf,
    SolverFunction.ORGQR: Cusolver.orgqr,
    SolverFunction.SYEVD: Cusolver.syevd,
    SolverFunction.GESVD: Cusolver.gesvd,
    SolverFunction.GESVDJ: Cusolver.gesvdj,
}
