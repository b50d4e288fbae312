"""Order each computation so that few bytes are live at one time: several orders, the best by simulation.

As in XLA's memory scheduler, several heuristics make an order each (orders.py); each one's peak is simulated and the
least wins (the order as it stands on a tie). Every one is linear or n log n. All devices run one program in one order,
so collectives meet whatever the order is.
"""

from __future__ import annotations

from runtime.schedule.memory_model import MemoryModel, Place
from runtime.schedule.orders import Before, candidate_orders
from spmd.hlo import HloComputation, HloModule, Opcode
from spmd.shape import ShapeIndex, leaves


def schedule_for_memory(module: HloModule) -> None:
    """Order every computation that the entry reaches; callees first, so that callers know what they need."""
    needs: dict[HloComputation, int] = {}
    bodies = {i.while_body for i in module.all_instructions() if i.opcode is Opcode.WHILE}
    for computation in module.computations_post_order():
        returns: dict[ShapeIndex, Place] = {}
        if computation is module.entry:
            returns = {
                alias.output_index: (alias.parameter, alias.parameter_index)
                for alias in module.input_output_alias
            }
        elif computation in bodies:
            returns = {index: (0, index) for index, _ in leaves(computation.root.shape)}
        needs[computation] = schedule_computation(computation, needs, returns)


def schedule_computation(
    computation: HloComputation,
    needs: dict[HloComputation, int],
    returns: dict[ShapeIndex, Place],
) -> int:
    """Order one computation; its simulated peak in bytes."""
    inner = {
        instruction: max(needs[callee] for callee in instruction.called_computations)
        for instruction in computation.instructions
        if instruction.opcode in (Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL)
    }
    model = MemoryModel(computation, inner, returns)
    before = followed(model)
    orders = list(candidate_orders(model, before).values())
    peaks = [model.peak(order) for order in orders]
    best = min(range(len(orders)), key=lambda i: (peaks[i], i))
    computation.set_order(orders[best])
    return peaks[best]


def followed(model: MemoryModel) -> Before:
    """What each instruction follows: operands, control predecessors, readers of what it should overwrite."""
    waits = model.waits()
    return {
        i: list(dict.fromkeys((*i.operands, *i.control_predecessors, *waits.get(i, ()))))
        for i in model.computation.instructions
    }
