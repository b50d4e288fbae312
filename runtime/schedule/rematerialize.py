"""Rematerialization: recomputes values for late readers instead of keeping them live through the peak.

Each round plans repeats on one order until the planned peak is low enough, edits the computation, and simulates it
again. A round that does not lower the bytes above the goal is undone, and its best repeat is tried alone. The chosen
repeats free most bytes at the peak per repeated work. (XLA's HloRematerialization traverses the schedule once, and
decides at the positions where memory exceeds the limit. A plan over all positions lets repeats share their results.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from runtime.schedule.live_ranges import LiveRanges
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.op_facts import OpFacts
from runtime.schedule.recompute import Copies, Limits, RecomputeSearch, Repeat
from runtime.schedule.recompute_cost import RecomputeCost
from runtime.schedule.repeat_edit import RepeatEdit
from runtime.schedule.split_edit import SplitEdit
from runtime.schedule.split_region import Region, RegionSearch
from spmd.analysis.side_effects import SideEffects
from spmd.hlo import HloComputation, HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops import OpCost

#: Fractions of the module's flops and of its memory traffic that may be repeated by default.
FLOPS_SHARE = 1 / 200
BYTES_SHARE = 1 / 30
#: Largest number of candidates for one decision. The largest values are considered.
MOST_CANDIDATES = 48
#: A repeat that frees at least this many bytes per unit of work is preferred to any split without comparison.
WORTH_MORE_THAN_SPLITS = 0.5
#: Number of consecutive rounds that may be undone. After one more the goal is given up.
MOST_FAILURES = 6

MakeModel = Callable[[], MemoryModel]


@dataclass
class Budget:
    """Work that may still be repeated: flops, and bytes of memory traffic."""

    flops: float = np.inf
    bytes: float = np.inf

    @staticmethod
    def of(work: OpCost) -> Budget:
        """Return the default budget of a module with ``work``."""
        return Budget(work.flops * FLOPS_SHARE, work.bytes_accessed * BYTES_SHARE)

    def allows(self, cost: RecomputeCost) -> bool:
        """Return whether work of ``cost`` may still be repeated."""
        return cost.flops <= self.flops and cost.bytes <= self.bytes

    def minus(self, cost: RecomputeCost) -> Budget:
        """Return the budget that is left after work of ``cost`` has been repeated."""
        return Budget(self.flops - cost.flops, self.bytes - cost.bytes)


@dataclass
class Rematerializer:
    """Rematerializer of one computation.

    make_model: function that returns the memory model of the computation, with the present peaks of its callees.
    facts: facts of buffer assignment, to which those of copies are added. peak: peak of the present order in bytes, by
    the memory model.
    """

    computation: HloComputation
    make_model: MakeModel
    budget: Budget
    limits: Limits
    facts: OpFacts = field(default_factory=OpFacts)
    peak: int = field(init=False)

    def __post_init__(self) -> None:
        self._copies = Copies(self.limits)
        self._hopeless: dict[HloInstruction, None] = {}
        self._regions = RegionSearch()
        self._vain: dict[tuple[HloInstruction, ...], None] = {}
        self.look()

    def look(self) -> None:
        """Simulate the present order again. It must be called if callees may have changed."""
        self._live_on(self.make_model())

    def _live_on(self, model: MemoryModel) -> None:
        """Compute live ranges and peak of the computation's present order with ``model``."""
        self._live_ranges = LiveRanges(model, self.computation.instructions)
        self.peak = int(self._live_ranges.needs.max(initial=0))

    def lower(self, goal: int) -> bool:
        """Repeat and split work until at most ``goal`` bytes are live. Returns whether it reached the goal."""
        failures = 0
        self._hopeless.clear()
        self._vain.clear()
        while self.peak > goal and failures <= MOST_FAILURES:
            repeats = self._plan(goal)
            worth = _worth(repeats[0]) if repeats else 0.0
            region = self._best_region() if worth < WORTH_MORE_THAN_SPLITS else None
            if region is not None and region.worth > worth:
                if not self._try_split(region, goal):
                    self._vain[region.members] = None
                continue
            if failures:
                repeats = repeats[:1]
            if not repeats:
                return False
            if self._try(repeats, goal):
                failures = 0
                continue
            failures += 1
            if len(repeats) == 1:
                self._hopeless[repeats[0].value] = None
        return self.peak <= goal

    def _best_region(self) -> Region | None:
        """Return the region at the peak that frees most bytes per work; None if there is none or many have failed."""
        if not self.limits.splits or len(self._vain) > MOST_FAILURES:
            return None
        found = self._regions.at(self._live_ranges, int(self._live_ranges.needs.argmax()))
        return max(
            (region for region in found if region.members not in self._vain),
            key=lambda region: region.worth,
            default=None,
        )

    def _try_split(self, region: Region, goal: int) -> bool:
        """Compute ``region`` in pieces, and undo it unless fewer bytes exceed ``goal``. Returns whether it is kept."""
        before, live_ranges = _above(self._live_ranges, goal), self._live_ranges
        edit = SplitEdit(live_ranges, region)
        self._live_ranges = LiveRanges(live_ranges.model, edit.order)
        peak = int(self._live_ranges.needs.max(initial=0))
        if peak > self.peak or _above(self._live_ranges, goal, edit.weights) >= before:
            edit.undo()
            self._live_ranges = live_ranges
            return False
        edit.keep()
        self._regions.leave(edit.made)
        if self.computation.remove_unused(SideEffects().of):
            live_ranges.model.rebuild()
        self._live_on(live_ranges.model)
        return True

    def _plan(self, goal: int) -> list[Repeat]:
        """Return repeats that together lower the bytes of every position to ``goal``, or as far as one round can."""
        search = RecomputeSearch(self._live_ranges, self._copies, goal)
        needs, gaps = self._live_ranges.needs.copy(), self._live_ranges.gaps
        budget = self.budget
        chosen: list[Repeat] = []
        while True:
            top = int(self._live_ranges.needs.argmax())
            if self._live_ranges.needs[top] <= goal:
                break
            best: Repeat | None = None
            for number in gaps.across(top, MOST_CANDIDATES):
                value = gaps.values[number]
                if value in self._hopeless or not search.may_move(value):
                    continue
                start, end = int(gaps.starts[number]), int(gaps.ends[number])
                found = search.find(value, start, end, top)
                if found is None or not budget.allows(found.cost):
                    continue
                if best is None or _worth(found) > _worth(best):
                    best = found
            if best is None:
                break
            search.apply(best)
            budget = budget.minus(best.cost)
            chosen.append(best)
        self._live_ranges.needs[:] = needs
        return chosen

    def _try(self, repeats: Sequence[Repeat], goal: int) -> bool:
        """Apply ``repeats``, and undo the edit unless fewer bytes exceed ``goal``. Returns whether it is kept."""
        before, peak, live_ranges = _above(self._live_ranges, goal), self.peak, self._live_ranges

        def note(copy: HloInstruction, original: HloInstruction) -> None:
            self.facts.like(copy, original)
            self._copies.add(copy, original)

        edit = RepeatEdit(live_ranges, repeats, note)
        self._live_on(live_ranges.model)
        if self.peak > peak or _above(self._live_ranges, goal) >= before:
            edit.undo()
            self._live_ranges, self.peak = live_ranges, peak
            return False
        for repeat in repeats:
            self.budget = self.budget.minus(repeat.cost)
        if edit.forget_unused():
            self._live_on(live_ranges.model)
        return True


def _above(live_ranges: LiveRanges, goal: int, weights: Sequence[float] | float = 1.0) -> float:
    """Return the sum over positions of the live bytes above ``goal``, times the positions' ``weights``."""
    return float((np.maximum(live_ranges.needs - goal, 0) * np.asarray(weights)).sum())


def _worth(repeat: Repeat) -> float:
    """Return the freed bytes per work. The work includes one access to the freed bytes, so the result is at most 1."""
    return repeat.freed / (repeat.cost.weight + repeat.freed)
