"""Arrays that stay on a device between steps, in the array slots of a loaded program.

A loaded program has array slots: the memory of its entry parameters and results. An array occupies a slot until a step
or another array needs the slot, and is then copied to its own allocation. State that a step reads and writes in the
same slot is therefore never copied, and an output that the caller has released costs nothing.

    state in slot 0 ── step, donated ──► consumed;  the step's output occupies slot 0
    loss  in slot 9 ── the next step writes slot 9 ──► copied out, if the caller still references it

A slot retains the DeviceArray objects that it has returned, and returns an object again as the output of a later step
if the slot's reference is the only one (CPython counts references exactly), so that consecutive steps create no
objects. The object of a donated output is reused one step later, since the caller references it until the caller's
variable is assigned the next output.

    state:  array A ── step, donated ──► array B ── step, donated ──► array A again, unless it is still referenced
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
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
    """Error of the use of an array after a step has consumed it."""


class End(NamedTuple):
    """Description of a donated array: the program that took it, its shape and type, for error messages."""

    taker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class TileMemory(Protocol):
    """Memory that holds the values of an array: a NumPy array, or memory of another device (runtime/gpu/tile.py)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> NDArray:
        """Return the values in the host's memory. They are copied only if the memory is another device's."""
        ...

    def copy(self) -> Self:
        """Return a copy in newly allocated memory."""
        ...


class DeviceArray:
    """One device's tile of an array. Its values do not change until it is donated to a step, which ends its use.

    This holds as long as the caller references the object. Weak references do not count: the device may reuse an object
    that no caller references.
    """

    __slots__ = ("_data", "_end", "key")

    def __init__(self, data: TileMemory, key: object | None = None) -> None:
        """Create an array. ``data``: memory of the slot with this key or, without a key, the array's own allocation."""
        self._data: TileMemory | None = data
        self._end: End | None = None
        #: Key of the slot that the array occupies; None if it has its own allocation.
        self.key = key

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape, also of a donated array."""
        return self._data.shape if self._end is None else self._end.shape  # type: ignore[union-attr]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the element type, also of a donated array."""
        return self._data.dtype if self._end is None else self._end.dtype  # type: ignore[union-attr]

    @property
    def is_donated(self) -> bool:
        """Return whether a step has consumed the array."""
        return self._data is None

    def view(self) -> NDArray:
        """Return the values without a copy. They must be read before the next step, and must not be written.

        The values of a device with its own memory are copied to the host. Raises DonatedError if the array was donated.
        """
        return np.asarray(self.data)

    @property
    def data(self) -> TileMemory:
        """Return the memory of the values. Raises DonatedError if the array was donated."""
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
        """Move the array to the slot with this key, whose ``memory`` already holds the values."""
        self._data, self._end, self.key = memory, None, key

    def move_out(self) -> None:
        """Copy the values to an allocation of the array's own, and leave the slot."""
        assert self._data is not None
        self._data, self.key = self._data.copy(), None

    def donate(self, end: End) -> None:
        """End the use of the array, which the step that ``end`` names consumes."""
        self._data, self._end, self.key = None, end, None


#: Array in no slot. It stands for an empty slot and is always referenced.
NO_ARRAY = DeviceArray(np.empty(0))


class ArraySlot:
    """Memory of an entry parameter or result (or of both), and the array that occupies it."""

    __slots__ = ("_former", "array", "key")

    def __init__(self, array: DeviceArray = NO_ARRAY) -> None:
        #: Arrays refer to this key instead of the slot, so that they do not keep the slot's memory alive.
        self.key = object()
        #: Last array of the slot. It still occupies the slot if it has the slot's key. An array has at most one slot.
        self.array = array
        #: Output of the step before the last one, or the array that the last step consumed.
        self._former = NO_ARRAY

    @property
    def is_free(self) -> bool:
        """Return whether the memory may be written: no array occupies the slot, or only the slot references it."""
        return self.array.key is not self.key or getrefcount(self.array) <= _OWN

    def vacate(self) -> None:
        """Make the memory writable: if a caller still references the array in the slot, copy the array out."""
        if not self.is_free:
            self.array.move_out()
            self.array = NO_ARRAY

    def admit(self, array: DeviceArray, memory: TileMemory) -> None:
        """Put ``array`` into the slot. ``memory``: memory of the slot, which already holds a copy of the values."""
        array.lie(memory, self.key)
        self.array = array

    def hand_out(self, memory: TileMemory) -> None:
        """Set ``array`` to an array for ``memory``, the memory of the slot, which was free and a step has written.

        An earlier array that only the slot references is reused.
        """
        if self.array.key is self.key:
            return  # only the slot references the array, so it is reused
        self.array, self._former = self._former, self.array
        if getrefcount(self.array) > _OWN:
            self.array = DeviceArray(memory, self.key)
        else:
            self.array.lie(memory, self.key)


#: An array's key, by a function without a Python frame: each step reads the key of each of its arguments.
_KEY = attrgetter("key")

_SAMPLE = ArraySlot(DeviceArray(np.empty(0)))
#: Number of references that the interpreter counts if only the slot references an array.
_OWN = getrefcount(_SAMPLE.array)


class DeviceMemory:
    """Memory of one device: its own block, with every allocation at an aligned offset, and blocks shared with peers.

    The communicator allocates all blocks, so that collectives can access them. The bytes are zeros at first.
    """

    def __init__(self, allocations: Sequence[BufferAllocation], communicator: Communicator) -> None:
        """Allocate the memory. ``allocations``: the allocations by index, which must be equal on every rank."""
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
        """Return the array that ``array_view`` refers to, without a copy."""
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
        """Return the bytes of ``allocation``, without a copy."""
        return self._blocks[allocation.index]

    # ---- as a ProgramMemory
    def fill(self, tile: NDArray, fill: Callable[[NDArray], None]) -> None:
        """Call ``fill`` to write ``tile``."""
        fill(tile)

    def allocate_like(self, tile: NDArray) -> NDArray:
        """Allocate memory for an array of the shape and type of ``tile``."""
        return np.empty_like(tile)

    def bring(self, tile: NDArray, array: DeviceArray) -> None:
        """Copy the values of ``array`` to ``tile``."""
        np.copyto(tile, array.view())


T = TypeVar("T", bound=TileMemory)


class ProgramMemory(Protocol[T]):
    """Device memory behind array slots: it returns the arrays in it, and writes them between steps."""

    def array(self, array_view: ArrayView) -> T:
        """Return the array that ``array_view`` refers to, without a copy."""
        ...

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
    """Array slots of one device's program. A result has the slot of a donated parameter, or a slot in a heap.

    A step writes all slots of results, and not only at its end: temporaries also overwrite arrays in heaps.
    """

    def __init__(self, program: DeviceProgram, memory: ProgramMemory[T]) -> None:
        """Create the slots of ``program``, which has been allocated in ``memory``. All slots are empty."""
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
        """Return a new array for parameter ``number``, which ``fill`` writes.

        It occupies the parameter's slot if that is free, otherwise newly allocated memory.
        """
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
        """Return whether each array occupies the slot of its parameter. Such arrays fit and have not been donated."""
        return [*map(_KEY, arrays)] == self._keys  # keys are equal only if they are one object

    def consume(self, arrays: Sequence[DeviceArray]) -> None:
        """Donate the arrays of aliased parameters, and vacate the other slots that the step writes.

        All arrays must be in their parameters' slots, or copied there by ``bring``.
        """
        for i, end in self._donated:
            arrays[i].donate(end)
        for slot in self._of_results:
            slot.vacate()

    def bring(self, arrays: Sequence[DeviceArray]) -> None:
        """Copy each array to the slot of its parameter unless it is there already. The arrays must fit."""
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
        """Create, or reuse, the arrays of the results' slots, which a step has written."""
        for leaf in self._results:
            leaf.slot.hand_out(leaf.memory)

    @property
    def results(self) -> tuple[ArraySlot, ...]:
        """Return the slots that hold the outputs of the last step."""
        return tuple(leaf.slot for leaf in self._results)


def require_world(program: DeviceProgram, size: int) -> None:
    """Raise RunError if ``size`` is not the program's number of devices."""
    if size != program.num_devices:
        raise RunError(
            f"{program.name} is for {program.num_devices} devices "
            f"({program.replica_count} replicas x {program.num_partitions} partitions), found {size}"
        )


def require_fit(program: DeviceProgram, arrays: Sequence[DeviceArray], device: int) -> None:
    """Check that ``arrays`` fit the parameters of ``program``, one array per parameter leaf.

    Raises RunError if their number, a shape or a type differs, and DonatedError if one was donated. ``device``: number
    of the device, for the message.
    """
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
