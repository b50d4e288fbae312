"""`spmd ARGUMENTS` with a defect planted in one rank: what benchmarks/faults/runs.py runs.

    python benchmarks/faults/program.py RANK PLACE RUN DEFECT ARGUMENTS      DEFECT: raise | exit | hang | late

PLACE is a number: of the thunk (modulo the number of thunks) of that rank's program that has the defect in its RUN-th
run; such a step needs Python. Or it is "between": the rank has the defect before its RUN-th step, and steps are native
code. A rank that is late is so from its RUN-th run on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import runtime.cpu.step.prepare as rules
from launch.cli import main as spmd
from launch.ranks.rank_environment import world_of_environment
from runtime.arrays.slots import DeviceArray
from runtime.cpu.executor import LoadedDevice
from runtime.cpu.step.segment import Action, Segment, joined, segment_of
from runtime.program.thunks import Thunk

BETWEEN = "between"
#: Seconds for which a rank that is late does nothing.
LATE = 0.03


class PlantedError(Exception):
    """The error that a defect in a kernel would raise."""


def defective(run: int, defect: str) -> Action:
    """Does nothing but in its ``run``-th run, or from there on where it is to be late."""
    left = run

    def act() -> None:
        nonlocal left
        left -= 1
        if defect == "late":
            time.sleep(LATE if left <= 0 else 0.0)
        elif left == 0:
            sys.stderr.write(f"planted at {time.monotonic():.6f}\n")
            sys.stderr.flush()
            if defect == "exit":
                sys.exit(1)
            if defect == "hang":
                time.sleep(1000)
            raise PlantedError("planted")

    return act


def plant(thunk_number: int, run: int, defect: str) -> None:
    """Put a row of Python in front of what one of the entry's thunks does."""
    original = rules.prepare

    def prepare(thunk: Thunk, loaded: LoadedDevice) -> Action | Segment:
        entry = loaded.program.thunks.thunks
        own = original(thunk, loaded)
        if thunk is not entry[thunk_number % len(entry)]:
            return own
        number = loaded.number_of(thunk)
        return joined([segment_of(number, defective(run, defect)), segment_of(number, own)])

    rules.prepare = prepare  # type: ignore[assignment]


def plant_between(run: int, defect: str) -> None:
    """Put it in front of what comes before a step's thunks."""
    original, act = LoadedDevice.begin, defective(run, defect)

    def begin(self: LoadedDevice, arrays: Sequence[DeviceArray]) -> None:
        act()
        original(self, arrays)

    LoadedDevice.begin = begin  # type: ignore[method-assign]


def main(rank: str, place: str, run: str, defect: str, *arguments: str) -> int:
    if (world_of_environment() or (0, 1))[0] == int(rank):
        if place == BETWEEN:
            plant_between(int(run), defect)
        else:
            plant(int(place), int(run), defect)
    return spmd(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
