"""Device memory of a program: one block for all allocations on the device, and one for those in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.arrays.slots import DeviceArray
from runtime.buffers.types import AllocationKind, ArrayView, BufferAllocation, BufferSlice
from runtime.device_program import DeviceProgram
from runtime.gpu.driver import GpuDriver
from runtime.gpu.errors import GpuMemoryError
from runtime.gpu.tile import DeviceTile
from runtime.gpu.transfers.staging import Staging
from runtime.gpu.views import DeviceView
from runtime.program.strides import StridedView
from spmd.literal import NDArray
from spmd.shape import ArrayShape

#: Alignment of allocations in bytes: that of cudaMalloc, and that of the widest loads.
ALIGNMENT = 256


class DeviceArena:
    """Memory blocks of one device, initially zero. Memory that a group of devices may share is private here."""

    def __init__(
        self, program: DeviceProgram, rank: int, driver: GpuDriver, staging: Staging
    ) -> None:
        """Raise GpuMemoryError, with the missing bytes, if the device has no room."""
        self._rank, self._staging = rank, staging
        allocations = program.assignment.allocations
        self._starts, size, hosted = _offsets(allocations)
        _require_room(program, size, driver)
        own = driver.allocate(size)
        host = driver.allocate_on_host(hosted) if hosted else own
        self._blocks = [own if a.is_on_device else host for a in allocations]

    def view(self, array_view: ArrayView) -> DeviceView:
        slice_ = array_view.slice
        start = self._starts[slice_.allocation] + slice_.start_on(self._rank)
        return DeviceView(self._blocks[slice_.allocation].address + start, array_view.view)

    def fill_constants(self, program: DeviceProgram) -> None:
        """Copy the constants to the device, once for all steps."""
        for allocation in program.assignment.of_kind(AllocationKind.CONSTANT):
            address = self._blocks[allocation.index].address + self._starts[allocation.index]
            self._staging.send(address, program.constants[allocation.index])

    def send(self, address: int, array: NDArray) -> None:
        self._staging.send(address, array)

    # ---- as a ProgramMemory (runtime/arrays/slots.py)
    def array(self, array_view: ArrayView) -> DeviceTile:
        view = self.view(array_view)
        assert array_view.view.is_packed, "entry parameters and results lie row major"
        return DeviceTile(
            self._staging, view.first, array_view.view.dims, array_view.view.element_type.numpy
        )

    def typed(self, allocation: int, shape: ArrayShape) -> DeviceTile:
        view = StridedView.dense(shape)
        return self.array(ArrayView(BufferSlice(allocation, 0, view.byte_size), view))

    def fill(self, tile: DeviceTile, fill: Callable[[NDArray], None]) -> None:
        tile.fill(fill)

    def allocate_like(self, tile: DeviceTile) -> DeviceTile:
        """Return new memory for an array like ``tile``."""
        return tile.empty_like()

    def bring(self, tile: DeviceTile, array: DeviceArray) -> None:
        """Copy the values of ``array``, which is on this device or in the host's memory, to ``tile``."""
        tile.copy_from(array.data)


def _offsets(allocations: Sequence[BufferAllocation]) -> tuple[list[int], int, int]:
    """Return the offset of each allocation in its block, and the bytes of the device's block and of the host's."""
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
            f"{program.name} takes {size:,} bytes of {driver.name} (arguments {stats.arguments:,}, constants "
            f"{stats.constants:,}, temporaries and outputs {stats.arena:,}), found {free:,} free: --memory-limit "
            f"{free} has values computed again, or in pieces, or use more devices"
        )
