"""Order each computation so that few bytes are live at one time: several orders, the best by simulation.

As in XLA's memory scheduler, several heuristics make an order each (orders.py), and each one's peak is simulated. What
rematerialization can still do depends on the order, and so does the packing: so the best few by simulation are carried
through both, on copies of the module, and the least memory wins (the order as it stands on a tie). Every heuristic is
linear or n log n, and the more instructions there are, the fewer orders are tried out. All devices run one program in
one order, so collectives meet whatever the order is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from runtime.schedule.exact_memory import device_bytes, device_bytes_below, step_facts
from runtime.schedule.lives import Lives
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.orders import Before, as_it_stands, candidate_orders, spliced
from runtime.schedule.recompute import Limits
from runtime.schedule.recompute_price import is_cheap
from runtime.schedule.rematerialize import Budget, Rematerializer
from runtime.schedule.step_facts import StepFacts
from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule, Stage
from spmd.hlo.clone import clone_module

#: Instructions of all trials together: a large module gets none.
TRIED_INSTRUCTIONS = 5_000
#: Trials for one computation, and how far above the least peak an order may be to get one.
MOST_TRIALS = 8
WORTH_A_TRIAL = 1.6
#: In modules of more instructions, an order's values are packed only where the model sees no more than this part of the
#: best one's bytes, and where the bytes may fall by that part.
MANY_INSTRUCTIONS = 400
MOST_ABOVE_BEST = 1.1
LEAST_GAIN = 1 / 1000
#: Where a computation's peak is this part of the largest, its order is worth a trial, and work a repetition.
HOT = 0.5
#: A round frees about this part of a peak at once; rounds end when the peak no longer falls.
ROUND_SHARE = 1 / 30
MAX_ROUNDS = 8

#: Positions, in the stored order, of the instructions one after the other.
Permutation: TypeAlias = tuple[int, ...]


def schedule_for_memory(module: HloModule, budget: Budget | None = None) -> None:
    """Order every computation that the entry reaches, callees first, so that callers know what they need; then repeat
    cheap work where that lowers a peak, as much as ``budget`` allows (by default, a small part of the module's).
    """
    stand_in_order(module)
    facts = step_facts(module)
    models = ModuleModel(module, facts or StepFacts())
    ranked = rank_orders(models)
    chosen = [orders[0] for orders in ranked]
    if budget is None:
        budget = Budget.of(module_cost(module).work)
    if facts is not None:
        chosen = try_out(module, facts, models, ranked, budget)
    carry_out(module, facts or StepFacts(), chosen, budget)


def stand_in_order(module: HloModule) -> None:
    """Make the stored order one that could run."""
    for computation in module.computations_post_order():
        model = MemoryModel(computation, {})
        computation.set_order(as_it_stands(model, followed(model)))
    module.stage = Stage.SCHEDULED


def rank_orders(models: ModuleModel) -> list[list[Permutation]]:
    """Orders of each computation that are worth a trial, the least peak first; callees count with their best."""
    ranked = []
    for computation in models.computations:
        model = models.of(computation)
        orders = list(candidate_orders(model, followed(model)).values())
        needs = [model.needs(order) for order in orders]
        orders.append(spliced(orders, needs))
        needs.append(model.needs(orders[-1]))
        peaks = [max(live, default=0) for live in needs]
        models.peaks[computation] = min(peaks)
        most = WORTH_A_TRIAL * min(peaks)
        # Of equal peaks the narrower one, by tenths: there is less to compute again around it.
        areas = [sum(live) for live in needs]
        tenth = max(min(areas) // 10, 1)
        by_peak = sorted(
            (peak, areas[k] // tenth, k) for k, peak in enumerate(peaks) if peak <= most
        )
        place = {instruction: n for n, instruction in enumerate(computation.instructions)}
        permutations = (tuple(place[i] for i in orders[k]) for *_, k in by_peak)
        ranked.append(list(dict.fromkeys(permutations)))
    return ranked


class Trials:
    """Carries orders through rematerialization and packing, on copies of ``module``; ``first`` is what the others must
    improve on.
    """

    def __init__(
        self,
        module: HloModule,
        facts: StepFacts,
        models: ModuleModel,
        budget: Budget,
        first: Sequence[Permutation],
    ) -> None:
        self.module = module
        self.models = models
        self._facts, self._budget = facts, budget
        many = module.instruction_count > MANY_INSTRUCTIONS
        self._most_above, self._gain = (MOST_ABOVE_BEST, LEAST_GAIN) if many else (np.inf, 0.0)
        copy, self._peaks = self._carried(first)
        self._bytes = device_bytes(copy)

    def improves(self, permutations: Sequence[Permutation]) -> bool:
        """Whether ``permutations`` need least so far: then they are what the next must improve on."""
        copy, peaks = self._carried(permutations)
        if peaks[-1] > self._most_above * self._peaks[-1]:
            return False
        found = device_bytes_below(copy, self._bytes, int(self._gain * self._bytes))
        if found is None:
            return False
        self._bytes, self._peaks = found, peaks
        return True

    def is_hopeless(self, number: int, order: Permutation) -> bool:
        """Whether computation ``number`` needs too much in that order even with all repeated that may be."""
        if self._most_above == np.inf:
            return False
        computation = self.models.computations[number]
        stored = computation.instructions
        lives = Lives(self.models.of(computation), [stored[n] for n in order])
        return lives.least_peak(is_cheap) > self._most_above * self._peaks[number]

    def _carried(self, permutations: Sequence[Permutation]) -> tuple[HloModule, list[int]]:
        """A copy of the module, and what the model says that each computation needs there."""
        copy = clone_module(self.module)
        models = carry_out(copy, self._facts.on(copy), permutations, self._budget)
        return copy, [models.peaks[computation] for computation in models.computations]


def try_out(
    module: HloModule,
    facts: StepFacts,
    models: ModuleModel,
    ranked: Sequence[Sequence[Permutation]],
    budget: Budget,
) -> list[Permutation]:
    """The order of each computation that gives least memory in the end, decided one after the other."""
    chosen = [orders[0] for orders in ranked]
    most = TRIED_INSTRUCTIONS // max(module.instruction_count, 1)
    to_try = [
        (number, ranked[number][rank])
        for rank in range(1, 1 + MOST_TRIALS)
        for number in _hot(models, ranked)
        if rank < len(ranked[number])
    ][: max(most - 1, 0)]
    if not to_try:
        return chosen
    trials = Trials(module, facts, models, budget, chosen)
    for number, order in to_try:
        other = [*chosen[:number], order, *chosen[number + 1 :]]
        if not trials.is_hopeless(number, order) and trials.improves(other):
            chosen = other
    return chosen


def _hot(models: ModuleModel, ranked: Sequence[Sequence[Permutation]]) -> list[int]:
    """Numbers of the computations that need most memory, those with most instructions first."""
    peaks = [models.peaks[computation] for computation in models.computations]
    hot = [n for n, peak in enumerate(peaks) if peak >= HOT * max(peaks)]
    return sorted(hot, key=lambda n: (-len(ranked[n][0]), n))


def carry_out(
    module: HloModule, facts: StepFacts, permutations: Sequence[Permutation], budget: Budget
) -> ModuleModel:
    """Put every computation into its order, then repeat cheap work in those that need most memory."""
    models = ModuleModel(module, facts)
    for computation, permutation in zip(models.computations, permutations, strict=True):
        stored = computation.instructions
        computation.set_order([stored[n] for n in permutation])
    models.simulate()
    most = max(models.peaks.values())
    for computation in models.computations:
        if models.peaks[computation] >= HOT * most:
            make_model = partial(models.of, computation)
            one = Rematerializer(computation, make_model, budget, Limits(), facts)
            repeat_cheap(one)
            models.peaks[computation], budget = one.peak, one.budget
    return models


def repeat_cheap(one: Rematerializer) -> None:
    for _ in range(MAX_ROUNDS):
        peak = one.peak
        one.lower(int(peak * (1 - ROUND_SHARE)))
        if one.peak >= peak:
            break


def followed(model: MemoryModel) -> Before:
    """What each instruction follows: operands, control predecessors, readers of what it should overwrite."""
    waits = model.waits()
    return {
        i: list(dict.fromkeys((*i.operands, *i.control_predecessors, *waits.get(i, ()))))
        for i in model.computation.instructions
    }
