"""A loaded program's entry parameters and results as places for arrays: what a step does to what lies in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.buffers.types import AllocationKind
from runtime.device_memory import DeviceMemory
from runtime.device_program import DeviceProgram
from runtime.resident import DeviceArray, Place
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class _Slot:
    """Array leaf of the entry's parameters or results: its memory, and the place which that is (part of)."""

    memory: NDArray
    place: Place


class Slots:
    """Results have a place each: a parameter's, which is then donated, or bytes of a heap.

    A step writes all of them (``_written``), and not only at its end: what lies in a heap between steps gives way to
    temporaries, too.
    """

    def __init__(self, program: DeviceProgram, memory: DeviceMemory) -> None:
        allocations = program.assignment.of_kind(AllocationKind.PARAMETER)
        places = {allocation.index: Place() for allocation in allocations}
        self._name = program.name
        self._parameters = [
            _Slot(memory.typed(index, shape), place)
            for (index, place), shape in zip(places.items(), program.parameters, strict=True)
        ]
        self._results = [
            _Slot(memory.array(view), places.get(view.slice.allocation) or Place())
            for view in program.outputs
        ]
        self._written = frozenset(slot.place for slot in self._results)

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """An array for parameter ``number``, written by ``fill``; beside its place if something lies there."""
        slot = self._parameters[number]
        if slot.place.occupant is not None:
            own = np.empty_like(slot.memory)
            fill(own)
            return DeviceArray(own)
        fill(slot.memory)
        return DeviceArray(slot.memory, slot.place)

    def take(self, arrays: Sequence[DeviceArray]) -> None:
        """Bring every parameter's array to its place and make the places free that the step writes."""
        for array, slot in zip(arrays, self._parameters, strict=True):
            if array.place is slot.place:
                continue
            values = array.view()
            slot.place.vacate()
            np.copyto(slot.memory, values)
            # An array in another program's place, or in a place that stays, need not be brought there again.
            if array.place is None or array.place in self._written:
                array.move_in(slot.place, slot.memory)
        for array, slot in zip(arrays, self._parameters, strict=True):
            if slot.place in self._written:
                array.donate(self._name)
        for place in self._written:
            place.vacate()

    def results(self) -> list[DeviceArray]:
        """What a step has left in the results' places."""
        return [DeviceArray(slot.memory, slot.place) for slot in self._results]
