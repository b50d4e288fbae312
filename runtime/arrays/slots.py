"""A loaded program's entry parameters and results as places for arrays: what a step does to what lies in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from runtime.arrays.resident import NOBODY, DeviceArray, End, Place, TileMemory
from runtime.buffers.types import AllocationKind, ArrayView
from runtime.device_program import DeviceProgram
from spmd.errors import RunError
from spmd.literal import NDArray
from spmd.shape import ArrayShape

T = TypeVar("T", bound=TileMemory)


class ProgramMemory(Protocol[T]):
    """A device's memory as slots see it: the arrays that lie there, and how they are written between steps."""

    def array(self, place: ArrayView) -> T: ...

    def typed(self, allocation: int, shape: ArrayShape) -> T:
        """The row-major array of ``shape`` that is allocation number ``allocation``."""
        ...

    def fill(self, tile: T, fill: Callable[[NDArray], None]) -> None:
        """Have ``fill`` write ``tile``."""
        ...

    def beside(self, tile: T) -> T:
        """Memory of its own for an array like ``tile``."""
        ...

    def bring(self, tile: T, array: DeviceArray) -> None:
        """``tile`` = the values of ``array``."""
        ...


@dataclass(frozen=True, slots=True)
class _Slot(Generic[T]):
    """Array leaf of the entry's parameters or results: its memory, and the place which that is (part of)."""

    memory: T
    place: Place


class Slots(Generic[T]):
    """Results have a place each: a parameter's, which is then donated, or bytes of a heap.

    A step writes all of them, and not only at its end: what lies in a heap between steps gives way to temporaries, too.
    """

    def __init__(self, program: DeviceProgram, memory: ProgramMemory[T]) -> None:
        self._memory = memory
        allocations = program.assignment.of_kind(AllocationKind.PARAMETER)
        places = {allocation.index: Place() for allocation in allocations}
        self._parameters = [
            _Slot(memory.typed(index, shape), place)
            for (index, place), shape in zip(places.items(), program.parameters, strict=True)
        ]
        self._results = [
            _Slot(memory.array(view), places.get(view.slice.allocation) or Place())
            for view in program.outputs
        ]
        self._keys = [slot.place.key for slot in self._parameters]
        #: The places that a step writes, by their keys.
        self._written = {slot.place.key: slot.place for slot in self._results}
        self._donated = [
            (i, End(program.name, slot.memory.shape, slot.memory.dtype))
            for i, slot in enumerate(self._parameters)
            if slot.place.key in self._written
        ]
        given = {slot.place.key for slot in self._parameters}
        self._of_results = [p for key, p in self._written.items() if key not in given]

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """An array for parameter ``number``, written by ``fill``; beside its place if something lies there."""
        slot = self._parameters[number]
        if not slot.place.is_free:
            own = self._memory.beside(slot.memory)
            self._memory.fill(own, fill)
            return DeviceArray(own)
        self._memory.fill(slot.memory, fill)
        array = DeviceArray(slot.memory)
        slot.place.admit(array, slot.memory)
        return array

    def hold(self, arrays: Sequence[DeviceArray]) -> bool:
        """Whether each array lies in its parameter's place; then all fit, and none is gone."""
        if len(arrays) != len(self._keys):
            return False
        for array, key in zip(arrays, self._keys, strict=True):  # noqa: SIM110 - no generator for each step
            if array.key is not key:
                return False
        return True

    def take(self, arrays: Sequence[DeviceArray]) -> None:
        """Make the places free that the step writes. Every array lies in its place, or ``bring`` has been called."""
        for i, end in self._donated:
            arrays[i].donate(end)
        for place in self._of_results:
            place.vacate()

    def bring(self, arrays: Sequence[DeviceArray]) -> None:
        """Bring every parameter's array to its place; arrays must fit."""
        for array, slot in zip(arrays, self._parameters, strict=True):
            if array.key is slot.place.key:
                continue
            slot.place.vacate()
            self._memory.bring(slot.memory, array)
            # An array in another program's place, or in a place that stays, need not be brought there again.
            left = self._written.get(array.key)
            if left is not None:
                left.array = NOBODY
            if left is not None or array.key is None:
                slot.place.admit(array, slot.memory)

    def hand_out(self) -> None:
        """A step has written the results' places: have arrays for them."""
        for slot in self._results:
            slot.place.hand_out(slot.memory)

    @property
    def results(self) -> tuple[Place, ...]:
        """The slots that hold the last step's outputs."""
        return tuple(slot.place for slot in self._results)


def require_world(program: DeviceProgram, size: int) -> None:
    """RunError where there is another number of devices than the program is for."""
    if size != program.num_devices:
        raise RunError(
            f"{program.name} is for {program.num_devices} devices "
            f"({program.replica_count} replicas x {program.num_partitions} partitions), found {size}"
        )


def require_fit(program: DeviceProgram, arrays: Sequence[DeviceArray], device: int) -> None:
    """RunError for arrays that are not ``program``'s parameters, DonatedError for one that is gone."""
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
