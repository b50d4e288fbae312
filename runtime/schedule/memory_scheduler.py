"""Memory scheduler: it computes several orders of each computation and chooses one by its simulated peak memory.

As in XLA's memory scheduler, each of several heuristics computes an order (orders.py), and the peak of each order is
simulated; one of the smallest peaks wins. Then work is recomputed if that lowers the peak. Every heuristic takes linear
or n log n time. All devices run the same program in the same order, so collectives match in any order.
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

#: Peaks of at most this multiple of the least peak count as equal to it.
NEARLY = 1.03
#: Work may be repeated in a computation if the bytes that are live while it runs, including those of its callers, are
#: at least HOT of the maximum, and its own peak is at least OWN_SHARE of the maximum.
HOT, OWN_SHARE = 0.5, 1 / 16
#: Each round tries to free this fraction of the peak. Rounds end when the peak no longer falls.
ROUND_SHARE = 1 / 30
MAX_ROUNDS = 8


def schedule_for_memory(module: HloModule, budget: Budget | None = None) -> None:
    """Order every computation that the entry reaches, then repeat cheap work if that lowers a peak.

    Callees are ordered before their callers, so that their peaks are known. budget: work that may be repeated, by
    default a small part of the module's work.
    """
    stand_in_order(module)
    models = ModuleModel(module, op_facts(module) or OpFacts())
    for computation in models.computations:
        order, models.peaks[computation] = best_order(models.of(computation))
        computation.set_order(order)
    repeat_where_hot(models, budget or Budget.of(module_cost(module).work))


def stand_in_order(module: HloModule) -> None:
    """Make the present order of every computation topological, and set the module's stage to SCHEDULED."""
    for computation in module.computations_post_order():
        model = MemoryModel(computation, {})
        computation.set_order(as_it_stands(model, followed(model)))
    module.stage = Stage.SCHEDULED


def best_order(model: MemoryModel) -> tuple[Order, int]:
    """Return the best of several orders, and its peak in bytes.

    Among the orders of nearly the least peak, it is the one with the smallest area, the sum of live bytes over all
    positions, in steps of a tenth of the smallest area; among equal ones, the one with the least peak. Values that are
    live for a shorter time leave less to recompute around the peak.
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
    """Repeat cheap work within ``budget`` in the computations that need most memory. All must have peaks."""
    at_peak = hot(models)
    for computation in models.computations:
        if computation in at_peak:
            make_model = partial(models.of, computation)
            one = Rematerializer(computation, make_model, budget, Limits(), models.facts)
            repeat_cheap(one)
            models.peaks[computation], budget = one.peak, one.budget


def hot(models: ModuleModel) -> frozenset[HloComputation]:
    """Return the computations in which repeated work may lower the maximum of live bytes (HOT, OWN_SHARE)."""
    totals = models.totals()
    most = max(totals.values())
    return frozenset(
        computation
        for computation, total in totals.items()
        if total >= HOT * most and models.peaks[computation] >= OWN_SHARE * most
    )


def repeat_cheap(one: Rematerializer) -> None:
    """Lower the peak of a computation in rounds, as long as it falls and for at most ``MAX_ROUNDS`` rounds."""
    for _ in range(MAX_ROUNDS):
        peak = one.peak
        one.lower(int(peak * (1 - ROUND_SHARE)))
        if one.peak >= peak:
            break


def followed(model: MemoryModel) -> Before:
    """Return the predecessors of each instruction: operands, control predecessors, and readers of an input that it
    overwrites.
    """
    waits = model.waits()
    return {
        i: list(dict.fromkeys((*i.operands, *i.control_predecessors, *waits.get(i, ()))))
        for i in model.computation.instructions
    }
