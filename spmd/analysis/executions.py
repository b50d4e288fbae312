"""How often a module's computations run in a step."""

from __future__ import annotations

from spmd.analysis.trip_count import trip_count
from spmd.hlo.computation import HloComputation
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode


def executions(module: HloModule) -> dict[HloComputation, int]:
    """A loop whose trips are unknown counts as one trip, and every branch of a conditional as taken.

    A condition counts with its body's trips; reducers and insides of fusions once for each instruction that calls them.
    """
    times = dict.fromkeys(module.computations, 0)
    times[module.entry] = 1
    for computation in reversed(module.computations_post_order()):
        for x in computation.instructions:
            trips = trip_count(x) if x.opcode is Opcode.WHILE else 1
            for callee in x.called_computations:
                times[callee] += times[computation] * (1 if trips is None else trips)
    return times
