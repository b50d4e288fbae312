"""Work of one execution of a module on one device: flops, transcendental functions, bytes, communication."""

from __future__ import annotations

from dataclasses import field, replace

import spmd.analysis.attention_cost  # registers the cost functions of fused attention
import spmd.analysis.lapack_cost  # noqa: F401 - registers what LAPACK calls cost
from spmd.analysis.executions import TripCount, callee_runs
from spmd.analysis.trip_count import trip_count
from spmd.analysis.wire import result_bytes, wire_weight
from spmd.custom_call import custom_call
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import OpCost, definition
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.opdef import SizeOf, byte_size


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Cost of one kind of collective. count: instructions; the other fields are per execution of the entry, loops
    counted.

    bytes: of results on one device; wire_bytes: what a device sends.
    """

    count: int = 0
    executed: float = 0.0
    bytes: float = 0.0
    wire_bytes: float = 0.0

    def plus(self, other: CollectiveCost, times: float) -> CollectiveCost:
        return CollectiveCost(
            self.count + other.count,
            self.executed + times * other.executed,
            self.bytes + times * other.bytes,
            self.wire_bytes + times * other.wire_bytes,
        )


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """Cost of a computation (of a module: its entry) executed once.

    ``unknown_loops``: the loops of unknown trip count; they count as one iteration.
    """

    work: OpCost
    collectives: dict[str, CollectiveCost] = field(default_factory=dict)
    unknown_loops: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        return self.work.flops

    @property
    def transcendentals(self) -> float:
        return self.work.transcendentals

    @property
    def bytes_accessed(self) -> float:
        return self.work.bytes_accessed

    @property
    def wire_bytes(self) -> float:
        return sum(kind.wire_bytes for kind in self.collectives.values())


def op_cost(instruction: HloInstruction, size_of: SizeOf = byte_size) -> OpCost:
    """Return the cost of the instruction itself, without called computations; the registered cost of a custom call.

    ``size_of`` gives the bytes of arrays.
    """
    op = definition(instruction.opcode)
    cost = op.cost
    if isinstance(instruction.attrs, CustomCallAttrs):
        cost = custom_call(instruction.attrs.target).cost or cost
    return replace(cost(instruction), bytes_accessed=float(op.bytes_accessed(instruction, size_of)))


def module_cost(module: HloModule, trips: TripCount = trip_count) -> ModuleCost:
    """Return the cost per execution of the entry on one device. A conditional counts its most expensive branch, and all
    its collectives.
    """
    counter = _Counter(module.num_partitions * module.replica_count, trips)
    for computation in module.computations_post_order():
        counter.count(computation)
    return counter.finish(module.entry)


class _Counter:
    """Costs of computations, callees first, so that each is computed once."""

    def __init__(self, devices: int, trips: TripCount) -> None:
        self._devices = devices
        self._trips = trips
        self._cost: dict[HloComputation, ModuleCost] = {}
        self._unknown: list[str] = []
        self._instructions: dict[str, int] = {}

    def count(self, computation: HloComputation) -> None:
        work = OpCost()
        collectives: dict[str, CollectiveCost] = {}
        for instruction in computation.instructions:
            work += op_cost(instruction) + self._callees_work(instruction)
            self._add_collectives(collectives, instruction)
        self._cost[computation] = ModuleCost(work, collectives)

    def finish(self, entry: HloComputation) -> ModuleCost:
        total = self._cost[entry]
        kinds = {
            kind: replace(cost, count=self._instructions[kind])
            for kind, cost in sorted(total.collectives.items())
        }
        return ModuleCost(total.work, kinds, tuple(self._unknown))

    def _callees_work(self, instruction: HloInstruction) -> OpCost:
        callees = instruction.called_computations
        if not callees:
            return OpCost()
        if instruction.opcode is Opcode.CONDITIONAL:
            return _maximum([self._cost[callee].work for callee in callees])
        work = OpCost()
        for callee, times in zip(callees, self._times(instruction), strict=True):
            inside = self._cost[callee].work.scaled(times)
            # A reducer or fused operation accesses no memory of its own: its caller counts the
            # bytes.
            work += (
                inside if instruction.opcode in _OWN_BYTES else replace(inside, bytes_accessed=0.0)
            )
        return work

    def _times(self, instruction: HloInstruction) -> tuple[float, ...]:
        """Return the executions of each callee per execution of the instruction."""
        if instruction.opcode is not Opcode.WHILE:
            return definition(instruction.opcode).applications(instruction)
        if self._trips(instruction) is None and instruction.name not in self._unknown:
            self._unknown.append(instruction.name)
        return callee_runs(instruction, self._trips)

    def _add_collectives(
        self, total: dict[str, CollectiveCost], instruction: HloInstruction
    ) -> None:
        kind = KIND.get(instruction.opcode)
        if kind is not None:
            size = result_bytes(instruction)
            sent = size * wire_weight(instruction, self._devices)
            total[kind] = total.get(kind, CollectiveCost()).plus(
                CollectiveCost(1, 1.0, size, sent), 1.0
            )
            self._instructions[kind] = self._instructions.get(kind, 0) + 1
            return
        callees = instruction.called_computations
        times = (
            (1.0,) * len(callees)
            if instruction.opcode is Opcode.CONDITIONAL
            else self._times(instruction)
        )
        for callee, often in zip(callees, times, strict=True):
            for kind, cost in self._cost[callee].collectives.items():
                total[kind] = total.get(kind, CollectiveCost()).plus(cost, often)


#: Opcodes whose callees run as ordinary computations with their own memory traffic.
_OWN_BYTES = (Opcode.CALL, Opcode.WHILE, Opcode.ASYNC_START)


def _maximum(costs: list[OpCost]) -> OpCost:
    return OpCost(
        max(c.flops for c in costs),
        max(c.transcendentals for c in costs),
        max(c.bytes_accessed for c in costs),
    )
