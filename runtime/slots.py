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
        #: In the order of the results; of several results in one place, once.
        self._written = tuple(dict.fromkeys(slot.place for slot in self._results))
        self._places = [slot.place for slot in self._parameters]
        self._donated = [i for i, place in enumerate(self._places) if place in self._written]

    def put(self, number: int, fill: Callable[[NDArray], None]) -> DeviceArray:
        """An array for parameter ``number``, written by ``fill``; beside its place if something lies there."""
        slot = self._parameters[number]
        if slot.place.occupant is not None:
            own = np.empty_like(slot.memory)
            fill(own)
            return DeviceArray(own)
        fill(slot.memory)
        return DeviceArray(slot.memory, slot.place)

    def hold(self, arrays: Sequence[DeviceArray]) -> bool:
        """Whether each array lies in its parameter's place; then all fit, and none is gone."""
        return [array.place for array in arrays] == self._places

    def take(self, arrays: Sequence[DeviceArray]) -> None:
        """Make the places free that the step writes. Every array lies in its place, or ``bring`` has been called."""
        for i in self._donated:
            arrays[i].donate(self._name)
        for place in self._written:
            reference = place.reference
            if reference is not None and reference() is not None:
                place.vacate()

    def bring(self, arrays: Sequence[DeviceArray]) -> None:
        """Bring every parameter's array to its place; arrays must fit."""
        for array, slot in zip(arrays, self._parameters, strict=True):
            if array.place is slot.place:
                continue
            values = array.view()
            slot.place.vacate()
            np.copyto(slot.memory, values)
            # An array in another program's place, or in a place that stays, need not be brought there again.
            if array.place is None or array.place in self._written:
                array.move_in(slot.place, slot.memory)

    def results(self) -> tuple[DeviceArray, ...]:
        """What a step has left in the results' places."""
        return tuple([DeviceArray(slot.memory, slot.place) for slot in self._results])
