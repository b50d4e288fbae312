"""Array slots of a loaded program: the memory of its entry parameters and results, and what a step does to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from runtime.arrays.resident import NO_ARRAY, ArraySlot, DeviceArray, End, TileMemory
from runtime.buffers.types import AllocationKind, ArrayView
from runtime.device_program import DeviceProgram
from spmd.errors import RunError
from spmd.literal import NDArray
from spmd.shape import ArrayShape

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
