"""`spmd ARGUMENTS` with a defect planted in one thunk of one rank: what benchmarks/fault_runs.py runs.

    python benchmarks/fault_program.py RANK THUNK RUN DEFECT ARGUMENTS      DEFECT: raise | exit | hang

The thunk with number THUNK (modulo the number of thunks) of that rank's program has the defect in its RUN-th run.
"""

from __future__ import annotations

import sys
import time

import runtime.thunks.sequence as sequences
from launch.cli import main
from launch.rank_environment import world_of_environment
from runtime.thunks.segment import Action, Segment, joined, segment_of
from runtime.thunks.thunk import LoadedProgram


class PlantedError(Exception):
    """What a defect in a kernel would raise."""


def defective(run: int, defect: str) -> Action:
    """Does nothing but in its ``run``-th run."""
    left = run

    def act() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            if defect == "exit":
                sys.exit(1)
            if defect == "hang":
                time.sleep(1000)
            raise PlantedError("planted")

    return act


def plant(thunk_number: int, run: int, defect: str) -> None:
    """Put a row of Python in front of what one of the entry's thunks does."""
    original = sequences.ThunkSequence.prepare

    def prepare(self: sequences.ThunkSequence, program: LoadedProgram) -> Segment:
        chosen = self.thunks[thunk_number % len(self.thunks)]
        if program.number_of(self) == 0:

            def bad(loaded: LoadedProgram) -> Segment:
                number = loaded.number_of(chosen)
                own = segment_of(number, type(chosen).prepare(chosen, loaded))
                return joined([segment_of(number, defective(run, defect)), own])

            # In its turn: ranks bind collectives in order.
            object.__setattr__(chosen, "prepare", bad)
        return original(self, program)

    sequences.ThunkSequence.prepare = prepare  # type: ignore[method-assign]


if __name__ == "__main__":
    rank, thunk, run = map(int, sys.argv[1:4])
    if (world_of_environment() or (0, 1))[0] == rank:
        plant(thunk, run, sys.argv[4])
    sys.exit(main(sys.argv[5:]))
