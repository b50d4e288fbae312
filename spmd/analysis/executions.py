"""Numbers of executions of a module's computations in a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from spmd.analysis.trip_count import trip_count
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode

#: Number of executions of a loop's body, None if unknown.
TripCount: TypeAlias = Callable[[HloInstruction], int | None]

_MOST = (1 << 63) - 1


def counted_trips(loop: HloInstruction, trips: TripCount = trip_count) -> int:
    """Return the trip count of a loop, or 1 if it is unknown."""
    known = trips(loop)
    return 1 if known is None else known


def callee_runs(x: HloInstruction, trips: TripCount = trip_count) -> tuple[int, ...]:
    """Return how often each callee runs per run of ``x``; each branch of a conditional counts as if it were taken.

    A loop evaluates its condition once more than its body. Reducers and fused computations count once.
    """
    if x.opcode is not Opcode.WHILE:
        return (1,) * len(x.called_computations)
    body = counted_trips(x, trips)
    return body + 1, body


def summed_over_callees(x: HloInstruction, each: Sequence[float]) -> float:
    """Return the sum over the callees of runs times value; the largest value for a conditional."""
    if x.opcode is Opcode.CONDITIONAL:
        return max(each)
    return sum(runs * one for runs, one in zip(callee_runs(x), each, strict=True))


def executions(module: HloModule) -> dict[HloComputation, int]:
    """Return the executions of each computation per step, by ``callee_runs``. They saturate at the largest int64, for
    nested loops that never end.
    """
    times = dict.fromkeys(module.computations, 0)
    times[module.entry] = 1
    for computation in reversed(module.computations_post_order()):
        for x in computation.instructions:
            for callee, runs in zip(x.called_computations, callee_runs(x), strict=True):
                times[callee] = min(times[callee] + times[computation] * runs, _MOST)
    return times
