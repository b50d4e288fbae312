"""Tests of how near the latency-hiding scheduler comes to the best order of small programs, found by trying all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collectives.passes.async_creation import AsyncCreation
from collectives.schedule.group_overlap import GroupOverlap
from collectives.schedule.latency_hiding import LatencyOptions, schedule_for_latency
from collectives.schedule.overlap_limits import InFlight, OverlapLimits
from collectives.schedule.phases import is_done, is_start
from collectives.schedule.timeline import run_timeline
from collectives.schedule.window_costs import WindowCosts
from spmd.hlo import HloInstruction, HloModule
from spmd.hlo.clone import clone_module
from tests.collectives.schedule.random_programs import random_program
from tests.collectives.schedule.table_estimator import random_estimator


def best_seconds(module: HloModule, costs: WindowCosts, limits: OverlapLimits) -> float:
    """The least seconds of all orders of the entry that are allowed."""
    best = float("inf")
    for candidate in topological(list(module.entry.instructions)):
        if is_apart(candidate, costs, limits):
            best = min(best, run_timeline(candidate, costs).seconds)
    return best


def topological(
    instructions: list[HloInstruction], done: tuple[HloInstruction, ...] = ()
) -> Iterator[tuple[HloInstruction, ...]]:
    """All orders; what takes no time stands as soon as it can."""
    if not instructions:
        yield done
        return
    ready = [x for x in instructions if all(y in done for y in x.operands)]
    weightless = [x for x in ready if x.opcode.value in ("parameter", "constant", "tuple")]
    for x in weightless[:1] or ready:
        yield from topological([y for y in instructions if y is not x], (*done, x))


def is_apart(
    candidate: tuple[HloInstruction, ...], costs: WindowCosts, limits: OverlapLimits
) -> bool:
    in_flight = InFlight(limits, costs.group_overlap)
    for n, x in enumerate(candidate):
        if is_start(x):
            communication = costs.communication_of(x)
            if not in_flight.admits(communication):
                return False
            in_flight.open[candidate.index(x)] = communication
        elif is_done(x):
            del in_flight.open[candidate[:n].index(x.operand(0))]
    return True


#: No schedule of a small program takes longer than the best one times this.
FACTOR = 1.25


def test_near_the_best_order() -> None:
    ratios = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        module = small_program(rng)
        estimator = random_estimator(rng)
        limits = OverlapLimits(per_exchange=int(rng.integers(1, 3)))
        original = clone_module(module)
        report = schedule_for_latency(module, estimator, LatencyOptions(limits))
        best = best_seconds(original, WindowCosts(estimator, GroupOverlap(original)), limits)
        ratios.append(report.seconds / best)
        assert best <= report.seconds * (1 + 1e-9)
    assert max(ratios) <= FACTOR
    assert np.mean(ratios) <= 1.01


def small_program(rng: np.random.Generator) -> HloModule:
    """Return a random program without loops, with two or three collectives."""
    while True:
        module = random_program(int(rng.integers(1 << 30)), 4, steps=5)
        AsyncCreation().run(module)
        entry = module.entry.instructions
        windows = sum(map(is_start, entry))
        work = [x for x in entry if x.operands and not is_start(x) and not is_done(x)]
        callers = any(x.called_computations and not is_start(x) for x in entry)
        if 2 <= windows <= 3 and len(work) <= 5 and not callers:
            return module
