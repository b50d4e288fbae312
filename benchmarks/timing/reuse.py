"""Reuse distances of a step's thunks, and the seconds that a byte takes from there at a copy's rate.

Copies are timed by the bytes that they go over, again and again: each byte was touched that many bytes ago. In a step a
kernel's operands were touched when somebody made them, and what has run since lies between. So a copy's rate at a
thunk's own reuse distances is what its bytes can be had at in this step; the rate at its own size is what they could be
had at if all that it touches had just been touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.timing.rates import WORKING_SETS, Rates
from runtime.cpu.prediction.reuse_distance import Found, ReuseDistance, span_of
from runtime.cpu.prediction.step import is_full
from runtime.cpu.prediction.work import Access, touched, work_of
from runtime.device_program import DeviceProgram
from runtime.program.thunks import CopyThunk, KernelThunk, Thunk, WhileThunk
from spmd.analysis.trip_count import trip_count
from spmd.hlo import HloModule, Opcode
from spmd.machine.named import DEFAULT, machine_named


def byte_seconds(program: DeviceProgram, module: HloModule, rates: Rates) -> dict[str, float]:
    """Return by thunk the mean seconds of a byte that it touches, in a step that another one came before.

    ``program`` was made of ``module``. Of a loop the trips after the first one count.
    """
    loops = (x for x in module.all_instructions() if x.opcode is Opcode.WHILE)
    walk = _Walk({x.name: trip_count(x) or 1 for x in loops})
    for _ in range(2):
        walk.found.clear()
        walk.of(program.thunks)
    return {name: _mean(parts, rates) for name, parts in walk.found.items()}


def _mean(parts: list[Found], rates: Rates) -> float:
    size = sum(part.size for part in parts)
    total = sum(part.size / rates.bandwidth(part.distance) for part in parts)
    return total / size if size else 0.0


class _Walk:
    """Goes through thunks as a device does. ``found``: where what they touch was when they ran last."""

    def __init__(self, trips: Mapping[str, int]) -> None:
        self.found: dict[str, list[Found]] = {}
        self._trips = trips
        self._residency = ReuseDistance(WORKING_SETS[-1])

    def of(self, thunk: Thunk) -> None:
        inner = list(thunk.nested())
        for _ in range(min(self._trips.get(thunk.name, 1), 2)):
            for one in inner:
                self.of(one)
        if isinstance(thunk, WhileThunk):
            self.of(thunk.condition)
        if not inner:
            found = self._touch(list(_accesses(thunk)))
            if not isinstance(thunk, CopyThunk):  # it has the name of the instruction that needs it
                self.found[thunk.name] = found

    def _touch(self, accesses: Sequence[Access]) -> list[Found]:
        spans = [span_of(access.array) for access in accesses]
        whole = [is_full(a, span) for a, span in zip(accesses, spans, strict=True)]
        return [part for parts in self._residency.touch(spans, whole) for part in parts]


def _accesses(thunk: Thunk) -> Iterable[Access]:
    if isinstance(thunk, KernelThunk):
        # A thunk touches the same bytes on all machines.
        return work_of(thunk, machine_named(DEFAULT)).accesses
    return touched(dict.fromkeys(use.array for use in thunk.buffer_uses()))
