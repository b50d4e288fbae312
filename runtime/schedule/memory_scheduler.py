"""Order each computation so that few bytes are live at one time: several heuristics, the best by simulation.

As in XLA's memory scheduler: depth first by the memory a subtree needs, a list schedule that takes what frees most, and
the order as it stands; each order's peak is simulated and the least one wins (the order as it stands on a tie).
Every one is linear or n log n. All devices run one program in one order, so collectives meet whatever the order is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeAlias

from runtime.schedule.memory_model import MemoryModel, Place
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.shape import ShapeIndex, leaves

Order: TypeAlias = list[HloInstruction]
Before: TypeAlias = dict[HloInstruction, list[HloInstruction]]


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
    before = _before(model)
    orders = [make(model, before) for make in HEURISTICS]
    peaks = [model.peak(order) for order in orders]
    best = min(range(len(orders)), key=lambda i: (peaks[i], i))
    computation.set_order(orders[best])
    return peaks[best]


def _before(model: MemoryModel) -> Before:
    """What each instruction follows: operands, control predecessors, readers of what it should overwrite."""
    waits = model.waits()
    return {
        i: list(dict.fromkeys((*i.operands, *i.control_predecessors, *waits.get(i, ()))))
        for i in model.computation.instructions
    }


def as_it_stands(model: MemoryModel, before: Before) -> Order:
    """The stored order, made topological."""
    return _post_order(model.computation.instructions, lambda i: before[i])


def depth_first(model: MemoryModel, before: Before) -> Order:
    """Operands before users, the one whose subtree needs most first (Sethi and Ullman's order for expressions)."""
    needs: dict[HloInstruction, int] = {}
    held: dict[HloInstruction, int] = {}

    def by_need(instruction: HloInstruction) -> list[HloInstruction]:
        return sorted(before[instruction], key=lambda o: held[o] - needs[o])

    for instruction in as_it_stands(model, before):
        need = kept = 0
        for operand in by_need(instruction):
            need = max(need, kept + needs[operand])
            kept += held[operand]
        size = model.size[instruction]
        needs[instruction] = max(need, kept + size + model.inner.get(instruction, 0))
        # What a view holds is what its operand holds.
        held[instruction] = size if model.reads[instruction] or size else kept
    return _post_order((model.computation.root, *model.computation.instructions), by_need)


def _post_order(
    starts: Sequence[HloInstruction], before: Callable[[HloInstruction], list[HloInstruction]]
) -> Order:
    """Depth first from each start, everything an instruction follows in front of it."""
    done: dict[HloInstruction, None] = {}
    for start in starts:
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


def list_schedule(model: MemoryModel, before: Before) -> Order:
    """Among what is ready, take what frees most bytes; among equals, the earliest in the present order."""
    rank = {i: n for n, i in enumerate(as_it_stands(model, before))}
    missing = {instruction: len(before[instruction]) for instruction in rank}
    after: dict[HloInstruction, list[HloInstruction]] = {instruction: [] for instruction in rank}
    for instruction in rank:
        for earlier in before[instruction]:
            after[earlier].append(instruction)
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
        for user in after[instruction]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(heap, (-gain(user), rank[user]))
    return order


HEURISTICS: Sequence[Callable[[MemoryModel, Before], Order]] = (
    as_it_stands,
    depth_first,
    list_schedule,
)
