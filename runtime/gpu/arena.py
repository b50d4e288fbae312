"""Memory of a program on one GPU: one block for allocations in device memory, one for allocations in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.arrays.slots import DeviceArray
from runtime.buffers.types import AllocationKind, ArrayView, BufferAllocation, BufferSlice
from runtime.device_program import DeviceProgram
from runtime.gpu.driver import Allocator, GpuDriver
from runtime.gpu.errors import GpuMemoryError
from runtime.gpu.tile import DeviceTile
from runtime.gpu.transfers.staging import Staging
from runtime.gpu.views import DeviceView
from runtime.program.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import ArrayShape

#: Alignment of allocations in bytes, as cudaMalloc guarantees it. The widest loads need no more.
ALIGNMENT = 256


class DeviceArena:
    """Memory of one device's program, initially zero (a ProgramMemory, runtime/arrays/slots.py).

    Allocations that a group of CPU devices would share are private to each GPU.
    """

    def __init__(
        self,
        program: DeviceProgram,
        rank: int,
        driver: GpuDriver,
        staging: Staging,
        allocator: Allocator | None = None,
    ) -> None:
        """Allocate the blocks, that of device memory by ``allocator`` if it is not None.

        Raises GpuMemoryError if the program needs more device memory than is free.
        """
        self._rank, self._staging = rank, staging
        allocations = program.assignment.allocations
        self._starts, size, hosted = _offsets(allocations)
        _require_room(program, size, driver)
        own = driver.allocate(size, allocator)
        host = driver.allocate_on_host(hosted) if hosted else own
        self._blocks = [own if a.is_on_device else host for a in allocations]

    def view(self, array_view: ArrayView) -> DeviceView:
        """Return ``array_view`` with its address on this device."""
        slice_ = array_view.slice
        start = self._starts[slice_.allocation] + slice_.start_on(self._rank)
        return DeviceView(self._blocks[slice_.allocation].address + start, array_view.view)

    def fill_constants(self, program: DeviceProgram) -> None:
        """Copy the constants of ``program`` to the device. Steps only read them, so one call serves all steps."""
        for allocation in program.assignment.of_kind(AllocationKind.CONSTANT):
            address = self._blocks[allocation.index].address + self._starts[allocation.index]
            self._staging.send(address, program.constants[allocation.index])

    def send(self, address: int, array: NDArray) -> None:
        """Copy the elements of the host array ``array``, in row-major order, to ``address`` on the device."""
        self._staging.send(address, array)

    # ---- as a ProgramMemory (runtime/arrays/slots.py)
    def array(self, array_view: ArrayView) -> DeviceTile:
        view = self.view(array_view)
        assert array_view.view.is_packed, "entry parameters and results lie row major"
        block = self._blocks[array_view.slice.allocation]
        dims, dtype = array_view.view.dims, array_view.view.element_type.numpy
        return DeviceTile(self._staging, view.first, dims, dtype, block)

    def typed(self, allocation: int, shape: ArrayShape) -> DeviceTile:
        view = StridedView.dense(shape)
        return self.array(ArrayView(BufferSlice(allocation, 0, view.byte_size), view))

    def fill(self, tile: DeviceTile, fill: Callable[[NDArray], None]) -> None:
        tile.fill(fill)

    def allocate_like(self, tile: DeviceTile) -> DeviceTile:
        """Allocate memory for an array of the shape and type of ``tile``."""
        return tile.empty_like()

    def bring(self, tile: DeviceTile, array: DeviceArray) -> None:
        """Copy the values of ``array``, which is on this device or in the host's memory, to ``tile``."""
        tile.copy_from(array.data)


def _offsets(allocations: Sequence[BufferAllocation]) -> tuple[list[int], int, int]:
    """Return the offset of each allocation in its block, the size of the device block and that of the host block.

    All are in bytes.
    """
    starts, sizes = [], [0, 0]
    for allocation in allocations:
        block = 0 if allocation.is_on_device else 1
        starts.append(sizes[block])
        sizes[block] += -(-allocation.size // ALIGNMENT) * ALIGNMENT
    return starts, sizes[0], sizes[1]


def _require_room(program: DeviceProgram, size: int, driver: GpuDriver) -> None:
    free = driver.free_bytes
    if size > free:
        stats = program.assignment.stats
        raise GpuMemoryError(
            f"{program.name} needs {size:,} bytes of {driver.name} (arguments {stats.arguments:,}, constants "
            f"{stats.constants:,}, temporaries and outputs {stats.arena:,}), but {free:,} are free: use --memory-limit "
            f"{free}, which rematerializes values, or more devices"
        )
