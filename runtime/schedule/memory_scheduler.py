"""Order each computation so that few bytes are live at one time: several orders, the best by simulation.

As in XLA's memory scheduler, several heuristics make an order each (orders.py); each one's peak is simulated and the
least wins (the order as it stands on a tie). Every one is linear or n log n. All devices run one program in one order,
so collectives meet whatever the order is.
"""

from __future__ import annotations

from functools import partial

from runtime.schedule.memory_model import MemoryModel, Place
from runtime.schedule.orders import Before, candidate_orders
from runtime.schedule.rematerialize import Budget, rematerialize
from spmd.analysis.cost import module_cost
from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.shape import ShapeIndex, leaves


def schedule_for_memory(module: HloModule) -> None:
    """Order every computation that the entry reaches, callees first, so that callers know what they need; then repeat
    cheap work where that lowers a peak.
    """
    needs: dict[HloComputation, int] = {}
    computations = module.computations_post_order()
    bodies = {i.while_body for i in module.all_instructions() if i.opcode is Opcode.WHILE}
    returns = {computation: _returns(module, computation, bodies) for computation in computations}
    for computation in computations:
        model = _model(computation, needs, returns[computation])
        before = followed(model)
        orders = list(candidate_orders(model, before).values())
        peaks = [model.peak(order) for order in orders]
        best = min(range(len(orders)), key=lambda i: (peaks[i], i))
        computation.set_order(orders[best])
        needs[computation] = peaks[best]
    budget = Budget.of(module_cost(module).work)
    limit = max(needs.values())
    for computation in computations:
        if 2 * needs[computation] >= limit:
            make_model = partial(_model, computation, needs, returns[computation])
            needs[computation] = rematerialize(computation, make_model, budget)


def _model(
    computation: HloComputation,
    needs: dict[HloComputation, int],
    returns: dict[ShapeIndex, Place],
) -> MemoryModel:
    """``needs``: peaks of the computations that this one calls."""
    inner = {
        instruction: max(needs[callee] for callee in instruction.called_computations)
        for instruction in computation.instructions
        if instruction.opcode in (Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL)
    }
    return MemoryModel(computation, inner, returns)


def _returns(
    module: HloModule, computation: HloComputation, bodies: set[HloComputation]
) -> dict[ShapeIndex, Place]:
    """Results that should end where something came in: aliased outputs, and what a loop's body hands on."""
    if computation is module.entry:
        return {
            alias.output_index: (alias.parameter, alias.parameter_index)
            for alias in module.input_output_alias
        }
    if computation not in bodies:
        return {}
    return {index: (0, index) for index, _ in leaves(computation.root.shape)}


def followed(model: MemoryModel) -> Before:
    """What each instruction follows: operands, control predecessors, readers of what it should overwrite."""
    waits = model.waits()
    return {
        i: list(dict.fromkeys((*i.operands, *i.control_predecessors, *waits.get(i, ()))))
        for i in model.computation.instructions
    }
