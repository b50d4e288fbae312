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

from runtime.schedule.exact_memory import device_bytes, step_facts
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.orders import Before, as_it_stands, candidate_orders, spliced
from runtime.schedule.recompute import Limits
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
#: Where a computation's peak is this part of the largest, its order is worth a trial, and work a repetition.
HOT = 0.5
#: A round frees about this part of a peak at once; rounds end when the peak no longer falls.
ROUND_SHARE = 1 / 30
MAX_ROUNDS = 8

#: Positions, in the stored order, of the instructions one after the other.
Permutation: TypeAlias = tuple[int, ...]


def schedule_for_memory(module: HloModule) -> None:
    """Order every computation that the entry reaches, callees first, so that callers know what they need; then repeat
    cheap work where that lowers a peak.
    """
    stand_in_order(module)
    facts = step_facts(module)
    models = ModuleModel(module, facts or StepFacts())
    ranked = rank_orders(models)
    chosen = [orders[0] for orders in ranked]
    if facts is not None:
        chosen = try_out(module, facts, models, ranked)
    carry_out(module, facts or StepFacts(), chosen)


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


def try_out(
    module: HloModule,
    facts: StepFacts,
    models: ModuleModel,
    ranked: Sequence[Sequence[Permutation]],
) -> list[Permutation]:
    """The order of each computation that gives least memory in the end, decided one after the other."""
    chosen = [orders[0] for orders in ranked]
    trials = TRIED_INSTRUCTIONS // max(module.instruction_count, 1)

    def total(permutations: Sequence[Permutation]) -> int:
        copy = clone_module(module)
        carry_out(copy, facts.on(copy), permutations)
        return device_bytes(copy)

    to_try = [
        (number, ranked[number][rank])
        for rank in range(1, 1 + MOST_TRIALS)
        for number in _hot(models, ranked)
        if rank < len(ranked[number])
    ][: max(trials - 1, 0)]
    if not to_try:
        return chosen
    least = total(chosen)
    for number, order in to_try:
        other = [*chosen[:number], order, *chosen[number + 1 :]]
        if (found := total(other)) < least:
            least, chosen = found, other
    return chosen


def _hot(models: ModuleModel, ranked: Sequence[Sequence[Permutation]]) -> list[int]:
    """Numbers of the computations that need most memory, those with most instructions first."""
    peaks = [models.peaks[computation] for computation in models.computations]
    hot = [n for n, peak in enumerate(peaks) if peak >= HOT * max(peaks)]
    return sorted(hot, key=lambda n: (-len(ranked[n][0]), n))


def carry_out(module: HloModule, facts: StepFacts, permutations: Sequence[Permutation]) -> None:
    """Put every computation into its order, then repeat cheap work in those that need most memory."""
    models = ModuleModel(module, facts)
    for computation, permutation in zip(models.computations, permutations, strict=True):
        stored = computation.instructions
        computation.set_order([stored[n] for n in permutation])
    models.simulate()
    budget = Budget.of(module_cost(module).work)
    most = max(models.peaks.values())
    for computation in models.computations:
        if models.peaks[computation] >= HOT * most:
            make_model = partial(models.of, computation)
            one = Rematerializer(computation, make_model, budget, Limits(), facts)
            repeat_cheap(one)
            models.peaks[computation], budget = one.peak, one.budget


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
