"""Order each computation so that few bytes are live at one time: several heuristics, the best by simulation.

As in XLA's memory scheduler: depth first by the memory a subtree needs, a list schedule that takes what frees most, and
the order as it stands; each order's peak is simulated and the least one wins (the order as it stands on a tie).
Every one is linear or n log n. All devices run one program in one order, so collectives meet whatever the order is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode

Order = list[HloInstruction]


def schedule_for_memory(module: HloModule) -> None:
    """Order every computation that the entry reaches; callees first, so that callers know what they need."""
    needs: dict[HloComputation, int] = {}
    for computation in module.computations_post_order():
        needs[computation] = schedule_computation(computation, needs)


def schedule_computation(computation: HloComputation, needs: dict[HloComputation, int]) -> int:
    """Order one computation; its simulated peak in bytes."""
    inner = {
        instruction: max(needs[callee] for callee in instruction.called_computations)
        for instruction in computation.instructions
        if instruction.opcode in (Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL)
    }
    model = MemoryModel(computation, inner)
    orders = [make(model) for make in HEURISTICS]
    peaks = [model.peak(order) for order in orders]
    best = min(range(len(orders)), key=lambda i: (peaks[i], i))
    computation.set_order(orders[best])
    return peaks[best]


def as_it_stands(model: MemoryModel) -> Order:
    return model.computation.post_order()


def depth_first(model: MemoryModel) -> Order:
    """Operands before users, the operand whose subtree needs most first (Sethi and Ullman's order for expressions)."""
    needs: dict[HloInstruction, int] = {}
    held: dict[HloInstruction, int] = {}
    for instruction in model.computation.post_order():
        operands = _by_need(instruction, needs, held)
        need = kept = 0
        for operand in operands:
            need = max(need, kept + needs[operand])
            kept += held[operand]
        size = model.size[instruction]
        needs[instruction] = max(need, kept + size + model.inner.get(instruction, 0))
        # What a view holds is what its operand holds.
        held[instruction] = size if model.reads[instruction] or size else kept
    return _post_order(model.computation, lambda i: _by_need(i, needs, held))


def _by_need(
    instruction: HloInstruction, needs: dict[HloInstruction, int], held: dict[HloInstruction, int]
) -> list[HloInstruction]:
    before = dict.fromkeys((*instruction.operands, *instruction.control_predecessors))
    return sorted(before, key=lambda o: held[o] - needs[o])


def _post_order(
    computation: HloComputation, before: Callable[[HloInstruction], list[HloInstruction]]
) -> Order:
    """From the root, then from whatever it does not reach (effects), depth first."""
    done: dict[HloInstruction, None] = {}
    for start in (computation.root, *computation.instructions):
        stack = [(start, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done[node] = None
                continue
            stack.append((node, True))
            stack.extend((o, False) for o in reversed(before(node)) if o not in done)
    return list(done)


def list_schedule(model: MemoryModel) -> Order:
    """Among what is ready, take what frees most bytes; among equals, the earliest in the present order."""
    rank = {i: n for n, i in enumerate(model.computation.post_order())}
    missing: dict[HloInstruction, int] = {}
    for instruction in rank:
        before = dict.fromkeys((*instruction.operands, *instruction.control_predecessors))
        missing[instruction] = len(before)
    left = dict(model.readers)
    readers: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction, sources in model.reads.items():
        for source in sources:
            readers.setdefault(source, []).append(instruction)
    by_rank = list(rank)

    def gain(instruction: HloInstruction) -> int:
        freed = sum(model.size[s] for s in model.reads[instruction] if left[s] == 1)
        return freed - model.size[instruction]

    heap = [(-gain(i), rank[i]) for i in by_rank if missing[i] == 0]
    heapq.heapify(heap)
    order: Order = []
    scheduled: dict[HloInstruction, None] = {}
    while heap:
        negative_gain, number = heapq.heappop(heap)
        instruction = by_rank[number]
        if instruction in scheduled:
            continue
        if gain(instruction) != -negative_gain:
            heapq.heappush(heap, (-gain(instruction), number))
            continue
        scheduled[instruction] = None
        order.append(instruction)
        for source in model.reads[instruction]:
            left[source] -= 1
            if left[source] == 1:
                for reader in readers[source]:
                    if reader not in scheduled and missing[reader] == 0:
                        heapq.heappush(heap, (-gain(reader), rank[reader]))
        for user in dict.fromkeys((*instruction.users, *instruction.control_successors)):
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(heap, (-gain(user), rank[user]))
    return order


HEURISTICS: Sequence[Callable[[MemoryModel], Order]] = (as_it_stands, depth_first, list_schedule)
