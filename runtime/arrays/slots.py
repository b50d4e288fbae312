"""Arrays that stay on a device between steps, in the array slots of a loaded program.

A loaded program has array slots: the memory of its entry parameters and results. An array occupies a slot until a step
or another array needs it, and is then copied to its own allocation. So state that a step reads and writes in the same
slot is never copied, and an output that the caller has released costs nothing.

    state in slot 0 ── step, donated ──► consumed;  the step's output occupies slot 0
    loss  in slot 9 ── the next step writes slot 9 ──► copied out, if the caller still references it

A slot retains the arrays that it has returned, and returns an output's again for a later step if its own reference is
the only one (CPython counts references exactly): consecutive steps create no objects. The array of a donated output is
reused one step later, since the caller references it until the next output gets its name.

    state:  array A ── step, donated ──► array B ── step, donated ──► array A again, unless it is still referenced
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from collectives.communicator.interface import Communicator
from runtime.buffers.types import AllocationKind, ArrayView, BufferAllocation, BufferSlice, aligned
from runtime.program.strides import StridedView
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape

if TYPE_CHECKING:
    from runtime.device_program import DeviceProgram


class DonatedError(RunError):
    """An array was used after a step had consumed it."""


class End(NamedTuple):
    """Record of an array that was donated."""

    taker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class TileMemory(Protocol):
    """Memory of one array's values: a NumPy array, or memory of another device (runtime/gpu/tile.py)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> NDArray:
        """Return the values in the host's memory, without a copy if they are there."""
        ...

    def copy(self) -> Self:
        """Return a copy in newly allocated memory."""
        ...


class DeviceArray:
    """One device's tile of an array. Its values never change; donating it to a step ends it.

    This holds for arrays that are referenced. There are no weak references: the device may reuse the object.
    """

    __slots__ = ("_data", "_end", "key")

    def __init__(self, data: TileMemory, key: object | None = None) -> None:
        """``data``: memory of the slot with this key; without a key, memory that only this array uses."""
        self._data: TileMemory | None = data
        self._end: End | None = None
        #: Key of the slot that it occupies; None if it has its own allocation.
        self.key = key

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape if self._end is None else self._end.shape  # type: ignore[union-attr]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._data.dtype if self._end is None else self._end.dtype  # type: ignore[union-attr]

    @property
    def is_donated(self) -> bool:
        return self._data is None

    def view(self) -> NDArray:
        """Return the values without a copy; read them before the next step and never write them.

        If the device has its own memory, they are copied to the host. Raises DonatedError if the array was donated.
        """
        return np.asarray(self.data)

    @property
    def data(self) -> TileMemory:
        """The memory of the values. Raises DonatedError if the array was donated."""
        if self._data is None:
            assert self._end is not None
            raise DonatedError(
                f"an array {self.dtype}{list(self.shape)} was donated to a step of {self._end.taker}, "
                "which wrote its result in its place: use that step's output"
            )
        return self._data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return a copy that later steps do not change."""
        if copy is False:
            raise ValueError("a device's array cannot be handed out without a copy")
        return np.array(self.view(), dtype=dtype, copy=True)

    # ---- used by devices
    def lie(self, memory: TileMemory, key: object) -> None:
        """Move the array to the slot with this key, whose ``memory`` holds the values."""
        self._data, self._end, self.key = memory, None, key

    def move_out(self) -> None:
        assert self._data is not None
        self._data, self.key = self._data.copy(), None

    def donate(self, end: End) -> None:
        self._data, self._end, self.key = None, end, None


#: Array in no slot. It stands for an empty slot and is always referenced.
NO_ARRAY = DeviceArray(np.empty(0))


class ArraySlot:
    """Memory of an entry parameter or result (or of both), and the array that occupies it."""

    __slots__ = ("_former", "array", "key")

    def __init__(self, array: DeviceArray = NO_ARRAY) -> None:
        #: Arrays refer to this key instead of the slot, so that they do not keep the slot's memory alive.
        self.key = object()
        #: Last array of the slot; it still occupies it if it has the ``key``. An array has at most one slot.
        self.array = array
        #: The output of the step before, or the array that that step consumed.
        self._former = NO_ARRAY

    @property
    def is_free(self) -> bool:
        """True if the memory may be written: no array occupies the slot, or only the slot references it."""
        return self.array.key is not self.key or getrefcount(self.array) <= _OWN

    def vacate(self) -> None:
        """Make the memory writable: copy the array out if it is still referenced."""
        if not self.is_free:
            self.array.move_out()
            self.array = NO_ARRAY

    def admit(self, array: DeviceArray, memory: TileMemory) -> None:
        """Put ``array`` into the slot. ``memory``: the slot's, which already holds a copy of the values."""
        array.lie(memory, self.key)
        self.array = array

    def hand_out(self, memory: TileMemory) -> None:
        """Make an array for ``memory``, the slot's, which was free and which a step has written."""
        if self.array.key is self.key:
            return  # only the slot references it
        self.array, self._former = self._former, self.array
        if getrefcount(self.array) > _OWN:
            self.array = DeviceArray(memory, self.key)
        else:
            self.array.lie(memory, self.key)


_SAMPLE = ArraySlot(DeviceArray(np.empty(0)))
#: Number of references that the interpreter counts if only the slot references an array.
_OWN = getrefcount(_SAMPLE.array)


class DeviceMemory:
    """Memory of one device: its own block, with every allocation at an aligned offset, and blocks shared with peers.

    All of it comes from the communicator, so that collectives can access it. Bytes are zeros at first.
    """

    def __init__(self, allocations: Sequence[BufferAllocation], communicator: Communicator) -> None:
        """Allocate the memory. ``allocations``: in order of their indices, the same on every rank."""
        starts, size = [], 0
        for allocation in allocations:
            starts.append(size)
            size += 0 if allocation.color.groups else aligned(allocation.size)
        self._device = communicator.rank
        own = communicator.allocate(size)
        self._blocks: list[NDArray] = []
        for allocation, start in zip(allocations, starts, strict=True):
            if allocation.color.groups:
                sharers = allocation.color.group_of(communicator.rank)
                self._blocks.append(communicator.allocate_shared(allocation.size, sharers))
            else:
                self._blocks.append(own[start : start + allocation.size])

    def array(self, array_view: ArrayView) -> NDArray:
        view = array_view.view
        if view.num_elements == 0:
            return np.zeros(view.dims, view.element_type.numpy)
        block = self._blocks[array_view.slice.allocation]
        start = array_view.slice.start_on(self._device) + view.offset
        return np.ndarray(view.dims, view.element_type.numpy, block, start, view.strides)

    def typed(self, allocation: int, shape: ArrayShape) -> NDArray:
        """Return allocation number ``allocation`` as a row-major array of ``shape``."""
        view = StridedView.dense(shape)
        return self.array(ArrayView(BufferSlice(allocation, 0, view.byte_size), view))

    def bytes_of(self, allocation: BufferAllocation) -> NDArray:
        return self._blocks[allocation.index]

    # ---- as a ProgramMemory
    def fill(self, tile: NDArray, fill: Callable[[NDArray], None]) -> None:
        fill(tile)

    def allocate_like(self, tile: NDArray) -> NDArray:
        return np.empty_like(tile)

    def bring(self, tile: NDArray, array: DeviceArray) -> None:
        np.copyto(tile, array.view())


T = TypeVar("T", bound=TileMemory)


class ProgramMemory(Protocol[T]):
    """Device memory behind array slots: the arrays in it, and how they are written between steps."""

    def array(self, array_view: ArrayView) -> T: ...

    def typed(self, allocation: int, shape: ArrayShape) -> T:
        """Return allocation number ``allocation`` as a row-major array of ``shape``."""
        ...

    def fill(self, tile: T, fill: Callable[[NDArray], None]) -> None:
        """Call ``fill`` to write ``tile``."""
        ...

    def allocate_like(self, tile: T) -> T:
        """Allocate memory for an array of the shape and type of ``tile``."""
        ...

    def bring(self, tile: T, array: DeviceArray) -> None:
        """Copy the values of ``array`` to ``tile``."""
        ...


@dataclass(frozen=True, slots=True)
class _EntryArray(Generic[T]):
    """Array leaf of the entry's parameters or results: its memory, and the array slot to which the memory belongs."""

    memory: T
    slot: ArraySlot


class Slots(Generic[T]):
    """Array slots of one device's program. Each result has one: that of a donated parameter, or bytes of a heap.

    A step writes all slots of results, and not only at its end: temporaries also overwrite arrays in heaps.
    """

    def __init__(self, program: DeviceProgram, memory: ProgramMemory[T]) -> None:
        self._memory = memory
        allocations = program.assignment.of_kind(AllocationKind.PARAMETER)
        slots = {allocation.index: ArraySlot() for allocation in allocations}
        self._parameters = [
            _EntryArray(memory.typed(index, shape), slot)
            for (index, slot), shape in zip(slots.items(), program.parameters, strict=True)
        ]
        self._results = [
            _EntryArray(memory.array(view), slots.get(view.slice.allocation) or ArraySlot())
            for view in program.outputs
        ]
        self._keys = [leaf.slot.key for leaf in self._parameters]
        #: The slots that a step writes, by their keys.
        self._written = {leaf.slot.key: leaf.slot for leaf in self._results}
        self._donated = [
            (i, End(program.name, leaf.memory.shape, leaf.memory.dtype))
            for i, leaf in enumerate(self._parameters)
            if leaf.slot.key in self._written
        ]
        given = {leaf.slot.key for leaf in self._parameters}
        self._of_results = [p for key, p in self._written.items() if key not in given]

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """Return an array for parameter ``number``, written by ``fill``, in its slot if that is free."""
        leaf = self._parameters[number]
        if not leaf.slot.is_free:
            own = self._memory.allocate_like(leaf.memory)
            self._memory.fill(own, fill)
            return DeviceArray(own)
        self._memory.fill(leaf.memory, fill)
        array = DeviceArray(leaf.memory)
        leaf.slot.admit(array, leaf.memory)
        return array

    def hold(self, arrays: Sequence[DeviceArray]) -> bool:
        """Return whether each array occupies its parameter's slot. If so, all fit, and none has been donated."""
        if len(arrays) != len(self._keys):
            return False
        for array, key in zip(arrays, self._keys, strict=True):  # noqa: SIM110 - no generator for each step
            if array.key is not key:
                return False
        return True

    def consume(self, arrays: Sequence[DeviceArray]) -> None:
        """Donate arrays and vacate the slots that the step writes. All arrays are in their slots."""
        for i, end in self._donated:
            arrays[i].donate(end)
        for slot in self._of_results:
            slot.vacate()

    def bring(self, arrays: Sequence[DeviceArray]) -> None:
        """Copy every parameter's array to its slot unless it is there already. Arrays must fit."""
        for array, leaf in zip(arrays, self._parameters, strict=True):
            if array.key is leaf.slot.key:
                continue
            leaf.slot.vacate()
            self._memory.bring(leaf.memory, array)
            # An array in another program's slot, or in a slot that no step writes, is not copied here a second time.
            left = self._written.get(array.key)
            if left is not None:
                left.array = NO_ARRAY
            if left is not None or array.key is None:
                leaf.slot.admit(array, leaf.memory)

    def hand_out(self) -> None:
        """Make arrays for the results' slots, which a step has written."""
        for leaf in self._results:
            leaf.slot.hand_out(leaf.memory)

    @property
    def results(self) -> tuple[ArraySlot, ...]:
        """The slots that hold the last step's outputs."""
        return tuple(leaf.slot for leaf in self._results)


def require_world(program: DeviceProgram, size: int) -> None:
    """Raise RunError if ``size`` is not the program's number of devices."""
    if size != program.num_devices:
        raise RunError(
            f"{program.name} is for {program.num_devices} devices "
            f"({program.replica_count} replicas x {program.num_partitions} partitions), found {size}"
        )


def require_fit(program: DeviceProgram, arrays: Sequence[DeviceArray], device: int) -> None:
    """Raise RunError if ``arrays`` do not fit the parameters of ``program``, DonatedError if one was donated."""
    shapes = program.parameters
    if len(arrays) != len(shapes):
        raise RunError(f"{program.name} takes {len(shapes)} arrays, found {len(arrays)}")
    for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if array.shape != shape.dims or array.dtype != shape.element_type.numpy:
            raise RunError(
                f"{program.name}: argument {i} is {array.dtype}{list(array.shape)} "
                f"on device {device}, expected {shape.without_layout()}"
            )
        _ = array.data
