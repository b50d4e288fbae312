"""PartitionReport: what partitioning moved between devices, for whom, and how far from the least possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from partitioner.partition.shard_state import ShardState
from spmd.hlo import HloInstruction
from spmd.shape import ArrayShape


class Purpose(Enum):
    """Purpose of a reshard; ``serving`` of its record names the instruction that it serves."""

    OPERAND = "operand"  # the op computes on another state than the value has
    RESULT = "result"  # the op's result is wanted in another state than it computes
    CARRIED = "carried"  # a loop's or branch's value must leave as its neighbours expect it
    OUTPUT = "output"  # the module's result is bound by an annotation


@dataclass(frozen=True, slots=True)
class ReshardRecord:
    """One value brought from one state to another, with the collectives that do it (instructions of the result).

    ``value`` and ``serving`` are instructions of the prepared source. Bytes are those a device receives in one
    execution, averaged over devices; ``bound`` is the least any program must receive (reshard/bound.py).
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
        """Receives more than ``least_bytes``, and more than ``ratio`` times its bound."""
        return self.received > least_bytes and self.received > ratio * self.bound


@dataclass(slots=True)
class PartitionReport:
    """Filled while a module is partitioned, in the order of the program.

    ``op_collectives``: collectives written while an op's partitioner ran, with that op: those of its operands'
    reshards, and its own (halos, merges).
    """

    reshards: list[ReshardRecord] = field(default_factory=list)
    op_collectives: dict[HloInstruction, HloInstruction] = field(default_factory=dict)

    def costly(self, least_bytes: float, ratio: float) -> tuple[ReshardRecord, ...]:
        return tuple(r for r in self.reshards if r.is_costly(least_bytes, ratio))
