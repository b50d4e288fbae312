"""PartitionReport: the values that partitioning moved, the ops served, and the bytes against the least possible."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from partitioner.partition.shard_state import ShardState
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape


class Purpose(Enum):
    """Purpose of a reshard; ``serving`` of its record names the instruction that it serves."""

    OPERAND = "operand"  # the op computes on a state other than the value's
    RESULT = "result"  # the result is wanted in a state other than the computed one
    CARRIED = "carried"  # a loop's or branch's value must leave in the state its neighbours expect
    OUTPUT = "output"  # an annotation binds the module's result


@dataclass(frozen=True, slots=True)
class ReshardRecord:
    """One value brought from one state to another, with the collectives that do so (instructions of the result).

    ``value`` and ``serving`` are instructions of the prepared source. Bytes are those a device receives in one
    execution, averaged over devices; ``bound`` is the least that any program must receive (reshard/bound.py).
    """

    value: HloInstruction
    serving: HloInstruction
    purpose: Purpose
    shape: ArrayShape
    source: ShardState
    target: ShardState
    received: float
    bound: float
    collectives: tuple[HloInstruction, ...]

    def is_costly(self, least_bytes: float, ratio: float) -> bool:
        """Return whether it receives more than ``least_bytes``, and more than ``ratio`` times its bound."""
        return self.received > least_bytes and self.received > ratio * self.bound


@dataclass(slots=True)
class PartitionReport:
    """Reshards and collectives of a partitioning, recorded in program order.

    ``op_collectives``: collectives written while an op's partitioner ran, with that op. They include those of its
    operands' reshards and its own (halos, merges).
    """

    reshards: list[ReshardRecord] = field(default_factory=list)
    op_collectives: dict[HloInstruction, HloInstruction] = field(default_factory=dict)

    def costly(self, least_bytes: float, ratio: float) -> tuple[ReshardRecord, ...]:
        return tuple(r for r in self.reshards if r.is_costly(least_bytes, ratio))
