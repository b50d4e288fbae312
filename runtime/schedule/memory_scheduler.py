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
from spmd.hlo import HloComputation, HloModule, Stage
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
LEAST_GAIN = 1 / 5000
#: Where a computation runs while this part of the most bytes is held, and needs that part of them itself, its order is
#: worth a trial, and work a repetition.
HOT, OWN_SHARE = 0.5, 1 / 16
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
    if budget is None:
        budget = Budget.of(module_cost(module).work)
    to_try = [] if facts is None else worth_trying(models, ranked)
    if facts is not None and to_try:
        trials = Trials(module, facts, models, budget, [orders[0] for orders in ranked])
        for number, order in to_try:
            trials.take(number, order)
        module.take_over(trials.best)
        return
    carry_out(module, facts or StepFacts(), [orders[0] for orders in ranked], budget)


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
    """Carries orders through rematerialization and packing, on copies of ``module``. ``best``: the one that needs
    least, at first with every computation in its order of ``first``.
    """

    def __init__(
        self,
        module: HloModule,
        facts: StepFacts,
        models: ModuleModel,
        budget: Budget,
        first: Sequence[Permutation],
    ) -> None:
        self._module, self._models = module, models
        self._facts, self._budget = facts, budget
        many = module.instruction_count > MANY_INSTRUCTIONS
        self._most_above, self._gain = (MOST_ABOVE_BEST, LEAST_GAIN) if many else (np.inf, 0.0)
        self._chosen = list(first)
        self.best, self._peaks = self._carried(first)
        self._bytes = device_bytes(self.best)

    def take(self, number: int, order: Permutation) -> None:
        """Computation ``number`` in ``order``, if that needs least so far; the next must improve on it then."""
        if self._is_hopeless(number, order):
            return
        permutations = [*self._chosen[:number], order, *self._chosen[number + 1 :]]
        copy, peaks = self._carried(permutations)
        if peaks[-1] > self._most_above * self._peaks[-1]:
            return
        found = device_bytes_below(copy, self._bytes, int(self._gain * self._bytes))
        if found is not None:
            self.best, self._bytes = copy, found
            self._chosen, self._peaks = permutations, peaks

    def _is_hopeless(self, number: int, order: Permutation) -> bool:
        """Whether computation ``number`` needs too much in that order even with all repeated that may be."""
        if self._most_above == np.inf:
            return False
        computation = self._models.computations[number]
        stored = computation.instructions
        lives = Lives(self._models.of(computation), [stored[n] for n in order])
        return lives.least_peak(is_cheap) > self._most_above * self._peaks[number]

    def _carried(self, permutations: Sequence[Permutation]) -> tuple[HloModule, list[int]]:
        """A copy of the module, and what the model says that each computation needs there."""
        copy = clone_module(self._module)
        models = carry_out(copy, self._facts.on(copy), permutations, self._budget)
        return copy, [models.peaks[computation] for computation in models.computations]


def worth_trying(
    models: ModuleModel, ranked: Sequence[Sequence[Permutation]]
) -> list[tuple[int, Permutation]]:
    """Orders besides the first in rank, by numbers of their computations, as many as there is time for."""
    most = TRIED_INSTRUCTIONS // max(models.module.instruction_count, 1)
    found = [
        (number, ranked[number][rank])
        for rank in range(1, 1 + MOST_TRIALS)
        for number in _hot(models, ranked)
        if rank < len(ranked[number])
    ]
    return found[: max(most - 1, 0)]


def _hot(models: ModuleModel, ranked: Sequence[Sequence[Permutation]]) -> list[int]:
    """Numbers of the computations that need most memory, those with most instructions first."""
    at_peak = hot(models)
    hot_numbers = [n for n, computation in enumerate(models.computations) if computation in at_peak]
    return sorted(hot_numbers, key=lambda n: (-len(ranked[n][0]), n))


def carry_out(
    module: HloModule, facts: StepFacts, permutations: Sequence[Permutation], budget: Budget
) -> ModuleModel:
    """Put every computation into its order, then repeat cheap work in those that need most memory."""
    models = ModuleModel(module, facts)
    for computation, permutation in zip(models.computations, permutations, strict=True):
        stored = computation.instructions
        computation.set_order([stored[n] for n in permutation])
    models.simulate()
    at_peak = hot(models)
    for computation in models.computations:
        if computation in at_peak:
            make_model = partial(models.of, computation)
            one = Rematerializer(computation, make_model, budget, Limits(), facts)
            repeat_cheap(one)
            models.peaks[computation], budget = one.peak, one.budget
    return models


def hot(models: ModuleModel) -> frozenset[HloComputation]:
    """Those whose order tells in the most bytes that are held at one time."""
    totals = models.totals()
    most = max(totals.values())
    return frozenset(
        computation
        for computation, total in totals.items()
        if total >= HOT * most and models.peaks[computation] >= OWN_SHARE * most
    )


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
