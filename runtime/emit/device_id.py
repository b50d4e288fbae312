"""Lowering of partition-id and replica-id."""

from __future__ import annotations

from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.thunks import PartitionIdThunk, ReplicaIdThunk, Thunk
from spmd.hlo import HloInstruction, Opcode


def emit_partition_id(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a partition-id."""
    return PartitionIdThunk(instruction.name, arrays.results[0])


def emit_replica_id(instruction: HloInstruction, arrays: OpArrays, _: Device) -> Thunk:
    """Return the thunk of a replica-id."""
    return ReplicaIdThunk(instruction.name, arrays.results[0])


LOWERINGS.add(Opcode.PARTITION_ID, Lowering(emit_partition_id))
LOWERINGS.add(Opcode.REPLICA_ID, Lowering(emit_replica_id))
