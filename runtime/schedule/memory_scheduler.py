"""Order each computation so that few bytes are live at one time: several orders, the best by simulation.

As in XLA's memory scheduler, several heuristics make an order each (orders.py), and each one's peak is simulated; one
of the least wins. Then work is computed again where that lowers the peak. Every heuristic is linear or n log n. All
devices run one program in one order, so collectives meet whatever the order is.
"""

from __future__ import annotations

from functools import partial

from runtime.schedule.exact_memory import step_facts
from runtime.schedule.memory_model import MemoryModel
from runtime.schedule.module_model import ModuleModel
from runtime.schedule.orders import Before, Order, as_it_stands, candidate_orders, spliced
from runtime.schedule.recompute import Limits
from runtime.schedule.rematerialize import Budget, Rematerializer
from runtime.schedule.step_facts import StepFacts
from spmd.analysis.cost import module_cost
from spmd.hlo import HloComputation, HloModule, Stage

#: Peaks of so many times the least count as equal to it.
NEARLY = 1.03
#: Where a computation runs while this part of the most bytes is held, and needs that part of them itself, work may be
#: repeated.
HOT, OWN_SHARE = 0.5, 1 / 16
#: A round frees about this part of a peak at once; rounds end when the peak no longer falls.
ROUND_SHARE = 1 / 30
MAX_ROUNDS = 8


def schedule_for_memory(module: HloModule, budget: Budget | None = None) -> None:
    """Order every computation that the entry reaches, callees first, so that callers know what they need; then repeat
    cheap work where that lowers a peak, as much as ``budget`` allows (by default, a small part of the module's).
    """
    stand_in_order(module)
    models = ModuleModel(module, step_facts(module) or StepFacts())
    for computation in models.computations:
        order, models.peaks[computation] = best_order(models.of(computation))
        computation.set_order(order)
    repeat_where_hot(models, budget or Budget.of(module_cost(module).work))


def stand_in_order(module: HloModule) -> None:
    """Make the stored order one that could run."""
    for computation in module.computations_post_order():
        model = MemoryModel(computation, {})
        computation.set_order(as_it_stands(model, followed(model)))
    module.stage = Stage.SCHEDULED


def best_order(model: MemoryModel) -> tuple[Order, int]:
    """An order and its peak: of those of nearly the least peak the narrowest, by tenths.

    What is held for a shorter time leaves less to compute again around the peak.
    """
    orders = list(candidate_orders(model, followed(model)).values())
    needs = [model.needs(order) for order in orders]
    orders.append(spliced(orders, needs))
    needs.append(model.needs(orders[-1]))
    peaks = [max(live, default=0) for live in needs]
    areas = [sum(live) for live in needs]
    most, tenth = NEARLY * min(peaks), max(min(areas) // 10, 1)
    near = [k for k, peak in enumerate(peaks) if peak <= most]
    best = min(near, key=lambda k: (areas[k] // tenth, peaks[k], areas[k], k))
    return orders[best], peaks[best]


def repeat_where_hot(models: ModuleModel, budget: Budget) -> None:
    """Repeat cheap work in the computations that need most memory; all have peaks."""
    at_peak = hot(models)
    for computation in models.computations:
        if computation in at_peak:
            make_model = partial(models.of, computation)
            one = Rematerializer(computation, make_model, budget, Limits(), models.facts)
            repeat_cheap(one)
            models.peaks[computation], budget = one.peak, one.budget


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
