"""Roles of opcodes for execution and scheduling: callers, starts and dones, opcodes without work."""

from __future__ import annotations

from spmd.hlo.collective_opcodes import COLLECTIVE_DONES
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

#: Opcodes that run other computations, which have memory of their own.
CALLERS = frozenset({Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL})

#: Starts whose result is (operands, results, ..).
PAIRED_STARTS = frozenset(
    {Opcode.ALL_GATHER_START, Opcode.COLLECTIVE_PERMUTE_START, Opcode.ASYNC_START}
)
#: Starts and dones of collectives and of async computations.
STARTS = PAIRED_STARTS | {Opcode.ALL_REDUCE_START}
DONES = frozenset({*COLLECTIVE_DONES, Opcode.ASYNC_DONE})

#: Opcodes that return the number of the executing device.
DEVICE_IDS = frozenset({Opcode.PARTITION_ID, Opcode.REPLICA_ID})

#: Opcodes that take neither time nor memory on a device, and may be scheduled anywhere.
WEIGHTLESS = DEVICE_IDS | {
    Opcode.PARAMETER,
    Opcode.CONSTANT,
    Opcode.TUPLE,
    Opcode.GET_TUPLE_ELEMENT,
    Opcode.BITCAST,
    Opcode.AFTER_ALL,
    Opcode.OPT_BARRIER,
}


def wrapped(x: HloInstruction) -> HloInstruction:
    """Return the instruction that an async-start runs; return any other instruction unchanged."""
    return x.to_apply.root if x.opcode is Opcode.ASYNC_START else x
