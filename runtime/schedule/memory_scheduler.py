"""Memory scheduler: makes several orders of each computation and chooses the best one by simulated peak memory.

As in XLA's memory scheduler, several heuristics make an order each (orders.py) and the peak of each is simulated; one
of the smallest wins. Then work is recomputed if that lowers the peak. Every heuristic is linear or n log n. All devices
run one program in one order, so collectives match for any order.
"""

from __future__ import annotations

from functools import partial

from runtime.schedule.exact_memory import op_facts
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.op_facts import OpFacts
from runtime.schedule.orders import Before, Order, as_it_stands, candidate_orders, spliced
from runtime.schedule.recompute import Limits
from runtime.schedule.rematerialize import Budget, Rematerializer
from spmd.analysis.cost import module_cost
from spmd.hlo import HloComputation, HloModule, Stage

#: Peaks up to this factor above the least count as equal to it.
NEARLY = 1.03
#: Work may be repeated in a computation if the total while it runs is at least HOT of the maximum,
#: and its own peak is at least OWN_SHARE of the maximum.
HOT, OWN_SHARE = 0.5, 1 / 16
#: A round frees about this part of a peak; rounds end when the peak no longer falls.
ROUND_SHARE = 1 / 30
MAX_ROUNDS = 8


def schedule_for_memory(module: HloModule, budget: Budget | None = None) -> None:
    """Order every computation that the entry reaches, callees first, so that the needs of callees are known. Then
    repeat cheap work if that lowers a peak, within ``budget`` (default: a small part of the module's work).
    """
    stand_in_order(module)
    models = ModuleModel(module, op_facts(module) or OpFacts())
    for computation in models.computations:
        order, models.peaks[computation] = best_order(models.of(computation))
        computation.set_order(order)
    repeat_where_hot(models, budget or Budget.of(module_cost(module).work))


def stand_in_order(module: HloModule) -> None:
    """Make the stored order of every computation topological, and set the stage to SCHEDULED."""
    for computation in module.computations_post_order():
        model = MemoryModel(computation, {})
        computation.set_order(as_it_stands(model, followed(model)))
    module.stage = Stage.SCHEDULED


def best_order(model: MemoryModel) -> tuple[Order, int]:
    """Return an order and its peak: the one with the smallest area, in tenths, among those of nearly the least peak.

    Values that are live for a shorter time leave less to recompute around the peak.
    """
    orders = list(candidate_orders(model, followed(model)).values())
    needs = [model.needs(order) for order in orders]
    orders.append(spliced(orders, needs))
    needs.append(model.needs(orders[-1]))
    peaks = [max(live, default=0) for live in needs]
    areas = [sum(live) for live in needs]
    most, tenth = NEARLY * min(peaks), max(min(areas) // 10, 1)
    nearly_least = [k for k, peak in enumerate(peaks) if peak <= most]
    best = min(nearly_least, key=lambda k: (areas[k] // tenth, peaks[k], areas[k], k))
    return orders[best], peaks[best]


def repeat_where_hot(models: ModuleModel, budget: Budget) -> None:
    """Repeat cheap work in the computations that need most memory. All computations must have peaks."""
    at_peak = hot(models)
    for computation in models.computations:
        if computation in at_peak:
            make_model = partial(models.of, computation)
            one = Rematerializer(computation, make_model, budget, Limits(), models.facts)
            repeat_cheap(one)
            models.peaks[computation], budget = one.peak, one.budget


def hot(models: ModuleModel) -> frozenset[HloComputation]:
    """Return the computations that determine the maximum number of live bytes."""
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
    """Return predecessors of each instruction: operands, control predecessors, readers of what it overwrites."""
    waits = model.waits()
    return {
        i: list(dict.fromkeys((*i.operands, *i.control_predecessors, *waits.get(i, ()))))
        for i in model.computation.instructions
    }
