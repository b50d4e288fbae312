"""Rematerialization: a cheap value is computed again for its late readers instead of being kept through the peak.

    x2 = x*x          x2 = x*x                 at the peak x2 is live only for the reader behind it; x is live anyway,
    y  = f(x2)        y  = f(x2)               so a second x*x just before that reader frees x2's bytes for the whole
    ...peak...   =>   ...peak...               stretch
    z  = g(x2, x)     x2' = x*x
                      z  = g(x2', x)

Only elementwise arithmetic whose operands live until the late reader is repeated (what XLA's fusion repeats without
being asked), and only as much as a small budget of work allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.schedule.memory_model import MemoryModel
from spmd.hlo import HloComputation, HloInstruction
from spmd.ops import OpCost, definition
from spmd.ops.opdef import OpDef

#: Parts of the module's flops and of its memory traffic that may be repeated.
FLOPS_SHARE = 1 / 200
BYTES_SHARE = 1 / 100
#: A round frees about this part of the peak at once; rounds end when the peak no longer falls.
ROUND_SHARE = 1 / 30
MAX_ROUNDS = 3

MakeModel = Callable[[], MemoryModel]


@dataclass
class Budget:
    """Work that may still be repeated."""

    flops: float
    bytes: float

    @staticmethod
    def of(work: OpCost) -> Budget:
        return Budget(work.flops * FLOPS_SHARE, work.bytes_accessed * BYTES_SHARE)

    def take(self, instruction: HloInstruction) -> bool:
        flops = op(instruction).cost(instruction).flops
        traffic = float(op(instruction).bytes_accessed(instruction))
        if flops > self.flops or traffic > self.bytes:
            return False
        self.flops -= flops
        self.bytes -= traffic
        return True


@dataclass(frozen=True)
class Repeat:
    """``value`` is computed again just before ``late[0]``, for all of ``late``."""

    value: HloInstruction
    late: tuple[HloInstruction, ...]


def op(instruction: HloInstruction) -> OpDef:
    return definition(instruction.opcode)


def rematerialize(computation: HloComputation, make_model: MakeModel, budget: Budget) -> int:
    """Edit ``computation`` and its order; returns its peak by the model, in bytes."""
    model = make_model()
    peak = model.peak(computation.instructions)
    for _ in range(MAX_ROUNDS):
        repeats = find_repeats(model, computation.instructions, int(peak * ROUND_SHARE), budget)
        if not repeats:
            break
        order = computation.instructions
        copies = [_apply(computation, repeat) for repeat in repeats]
        model = make_model()
        lowered = model.peak(computation.instructions)
        if lowered >= peak:
            for repeat, copy in zip(repeats, copies, strict=True):
                copy.replace_all_uses_with(repeat.value)
                computation.remove(copy)
            computation.set_order(order)
            break
        peak = lowered
    return peak


def find_repeats(
    model: MemoryModel, order: Sequence[HloInstruction], wanted: int, budget: Budget
) -> list[Repeat]:
    """What to repeat so that at least ``wanted`` bytes are free where the most are live: large values first."""
    place = {instruction: n for n, instruction in enumerate(order)}
    readers: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in order:
        for source in model.reads[instruction]:
            readers.setdefault(source, []).append(instruction)
    root = model.computation.root
    returned = dict.fromkeys(model.sources[root])
    top = model.peak_position(order)
    chosen: dict[HloInstruction, Repeat] = {}
    needed: dict[HloInstruction, None] = {}
    freed = 0
    for value in sorted(order[:top], key=lambda v: (-model.size[v], place[v])):
        if freed >= wanted or not model.size[value]:
            break
        read_at = [place[r] for r in readers.get(value, ())]
        if value in returned or value in needed or top in read_at or max(read_at, default=0) < top:
            continue
        late = tuple(r for r in readers[value] if place[r] > top)
        sources = _sources_alive(model, value, place[late[0]], readers, place, returned)
        if sources is None or any(source in chosen for source in sources):
            continue
        if not _is_cheap(value) or not budget.take(value):
            continue
        chosen[value] = Repeat(value, late)
        needed.update(dict.fromkeys(sources))
        freed += model.size[value]
    return list(chosen.values())


def _is_cheap(value: HloInstruction) -> bool:
    """Elementwise arithmetic that nothing ties to its place, read directly and not through views."""
    if not op(value).elementwise or value.called_computations:
        return False
    if op(value).cost(value).transcendentals or not op(value).cost(value).flops:
        return False
    return not value.control_predecessors and not value.control_successors


def _sources_alive(
    model: MemoryModel,
    value: HloInstruction,
    until: int,
    readers: dict[HloInstruction, list[HloInstruction]],
    place: dict[HloInstruction, int],
    returned: dict[HloInstruction, None],
) -> list[HloInstruction] | None:
    """What ``value`` reads, if all of it is live until position ``until``; None also where a reader sees a view."""
    direct = {reader for reader in readers[value] if value in reader.operands}
    if len(direct) != len(readers[value]) or len(value.users) != len(direct):
        return None
    # What comes in stays, unless a result is to be written over it.
    overwritten = dict.fromkeys(model.overwrites.values())
    reads = model.reads[value]
    sources = [source for source in reads if model.size[source] or source in overwritten]
    for source in sources:
        last = max((place[reader] for reader in readers[source]), default=0)
        if last < until and source not in returned:
            return None
    return sources


def _apply(computation: HloComputation, repeat: Repeat) -> HloInstruction:
    order = list(computation.instructions)
    copy = computation.add(repeat.value.clone(repeat.value.shape, repeat.value.operands))
    for reader in repeat.late:
        for position, operand in enumerate(reader.operands):
            if operand is repeat.value:
                reader.replace_operand(position, copy)
    order.insert(order.index(repeat.late[0]), copy)
    computation.set_order(order)
    return copy
