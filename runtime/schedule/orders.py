"""Heuristics that order the instructions of a computation so that few bytes are live at a time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloInstruction

Order: TypeAlias = list[HloInstruction]
#: Instructions next to each instruction: its predecessors, or its successors.
Before: TypeAlias = dict[HloInstruction, list[HloInstruction]]


def as_it_stands(model: MemoryModel, before: Before) -> Order:
    """Return the computation's present order, made topological: predecessors are moved forward where necessary."""
    return post_order(model.computation.instructions, lambda i: before[i])


def depth_first(model: MemoryModel, before: Before) -> Order:
    """Return a depth-first order in which the operand that needs most memory beyond its result comes first.

    It is the order of R. Sethi and J. D. Ullman, The generation of optimal code for arithmetic expressions, J. ACM 17
    (1970).
    """
    needs: dict[HloInstruction, int] = {}
    live_after: dict[HloInstruction, int] = {}

    def by_need(instruction: HloInstruction) -> list[HloInstruction]:
        return sorted(before[instruction], key=lambda o: live_after[o] - needs[o])

    for instruction in as_it_stands(model, before):
        need = live = 0
        for operand in by_need(instruction):
            need = max(need, live + needs[operand])
            live += live_after[operand]
        size = model.size[instruction]
        needs[instruction] = max(need, live + size + model.while_running(instruction))
        # A view keeps the memory of its operand live.
        live_after[instruction] = size if model.reads[instruction] or size else live
    return post_order((model.computation.root, *model.computation.instructions), by_need)


def post_order(
    starts: Sequence[HloInstruction], before: Callable[[HloInstruction], Sequence[HloInstruction]]
) -> Order:
    """Return the instructions that are reached from ``starts``, depth first, with predecessors before successors."""
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


def list_schedule(model: MemoryModel, before: Before, tie_order: Order) -> Order:
    """Return the order of a list scheduler, which always takes the ready instruction that frees most bytes.

    Among instructions that free equally many bytes, it takes the earliest in ``tie_order``.
    """
    after: Before = {instruction: [] for instruction in tie_order}
    for instruction in tie_order:
        for earlier in before[instruction]:
            after[earlier].append(instruction)
    left = dict(model.readers)
    readers = _readers(model)

    def gain(instruction: HloInstruction) -> int:
        freed = sum(model.size[s] for s in model.reads[instruction] if left[s] == 1)
        return freed - model.size[instruction]

    def take(instruction: HloInstruction) -> Iterator[HloInstruction]:
        for source in model.reads[instruction]:
            left[source] -= 1
            if left[source] == 1:
                yield from readers[source]

    return _by_gain(tie_order, after, gain, take)


def backward_list_schedule(model: MemoryModel, before: Before, tie_order: Order) -> Order:
    """Return the order of a list scheduler that proceeds from the end to the begin of the order.

    Among the instructions whose successors are all placed, it takes the one that leaves the fewest bytes live. In this
    direction an instruction ends the live range of its result and begins those of its operands. Among equals it takes
    the latest in ``tie_order``.
    """
    alive = dict.fromkeys(model.sources[model.computation.root])
    readers = _readers(model)

    def gain(instruction: HloInstruction) -> int:
        begun = sum(model.size[s] for s in model.reads[instruction] if s not in alive)
        return model.size[instruction] - begun

    def take(instruction: HloInstruction) -> Iterator[HloInstruction]:
        for source in model.reads[instruction]:
            if source not in alive:
                alive[source] = None
                yield from readers[source]

    return _by_gain(tie_order[::-1], before, gain, take)[::-1]


def _readers(model: MemoryModel) -> dict[HloInstruction, list[HloInstruction]]:
    """Return the instructions that read each value."""
    readers: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction, sources in model.reads.items():
        for source in sources:
            readers.setdefault(source, []).append(instruction)
    return readers


def _by_gain(
    tie_order: Order,
    next_ones: Before,
    gain: Callable[[HloInstruction], int],
    take: Callable[[HloInstruction], Iterator[HloInstruction]],
) -> Order:
    """Return the order that always takes the ready instruction of largest ``gain``, the earliest in ``tie_order``.

    next_ones: the instructions that are ready only after each instruction. take: function that records that an
    instruction has been taken, and yields those whose gain has grown by that.
    """
    rank = {instruction: n for n, instruction in enumerate(tie_order)}
    missing = dict.fromkeys(tie_order, 0)
    for instruction in tie_order:
        for other in next_ones[instruction]:
            missing[other] += 1
    heap = [(-gain(i), rank[i]) for i in tie_order if missing[i] == 0]
    heapq.heapify(heap)
    order: dict[HloInstruction, None] = {}
    while heap:
        negative_gain, number = heapq.heappop(heap)
        instruction = tie_order[number]
        if instruction in order:
            continue
        if gain(instruction) != -negative_gain:
            heapq.heappush(heap, (-gain(instruction), number))
            continue
        order[instruction] = None
        for other in take(instruction):
            if other not in order and missing[other] == 0:
                heapq.heappush(heap, (-gain(other), rank[other]))
        for other in next_ones[instruction]:
            missing[other] -= 1
            if missing[other] == 0:
                heapq.heappush(heap, (-gain(other), rank[other]))
    return list(order)


def postponed(model: MemoryModel, before: Before, order: Order) -> Order:
    """Return ``order`` with instructions that write more bytes than they free postponed until a successor is due.

    Instructions that free bytes keep their positions. Thus a value with a late reader is computed late, and a value
    whose computation is the last read of its operands is computed as early as possible.
    """
    position = {instruction: n for n, instruction in enumerate(order)}
    last_reader = {source: i for i in order for source in model.reads[i]}
    followed = {earlier for instruction in order for earlier in before[instruction]}

    def may_wait(instruction: HloInstruction) -> bool:
        reads, size = model.reads[instruction], model.size[instruction]
        freed = sum(model.size[source] for source in reads if last_reader[source] is instruction)
        return instruction in followed and (size > freed or not (size or reads))

    def in_order(instruction: HloInstruction) -> list[HloInstruction]:
        return sorted(before[instruction], key=lambda earlier: position[earlier])

    return post_order([i for i in order if not may_wait(i)], in_order)


def spliced(orders: Sequence[Order], needs: Sequence[Sequence[int]]) -> Order:
    """Combine the order of least peak, up to its peak, with the order of least area after that.

    needs: live bytes at each position of each order, whose sum is the order's area. Orders of equal peak may differ by
    half in their area if large values are live for long. A small area leaves room for rematerialization, and for
    temporaries in the memory of outputs that are not written yet.
    """
    areas = [sum(live) for live in needs]
    low = min(range(len(orders)), key=lambda k: (max(needs[k], default=0), areas[k], k))
    narrow = min(range(len(orders)), key=lambda k: (areas[k], k))
    peak = needs[low].index(max(needs[low])) if needs[low] else 0
    head = orders[low][: peak + 1]
    placed = dict.fromkeys(head)
    return [*head, *(i for i in orders[narrow] if i not in placed)]


def candidate_orders(model: MemoryModel, before: Before) -> dict[str, Order]:
    """Return an order for each heuristic, by the heuristic's name. The computation's present order comes first."""
    stands = as_it_stands(model, before)
    depth = depth_first(model, before)
    ready = list_schedule(model, before, stands)
    return {
        "as it stands": stands,
        "depth first": depth,
        "list": ready,
        "backward list": backward_list_schedule(model, before, stands),
        "as it stands, postponed": postponed(model, before, stands),
        "depth first, postponed": postponed(model, before, depth),
        "list, postponed": postponed(model, before, ready),
        "list by depth, postponed": postponed(model, before, list_schedule(model, before, depth)),
    }
