"""Which instructions begin a collective, end one, or do both, and which are no work at all."""

from __future__ import annotations

from spmd.analysis.wire import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

STARTS = frozenset(
    {
        Opcode.ALL_REDUCE_START,
        Opcode.ALL_GATHER_START,
        Opcode.COLLECTIVE_PERMUTE_START,
        Opcode.ASYNC_START,
    }
)
DONES = frozenset(
    {
        Opcode.ALL_REDUCE_DONE,
        Opcode.ALL_GATHER_DONE,
        Opcode.COLLECTIVE_PERMUTE_DONE,
        Opcode.ASYNC_DONE,
    }
)

#: Neither time nor memory on a device: they stand wherever they can.
WEIGHTLESS = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.BITCAST,
        Opcode.AFTER_ALL,
        Opcode.OPT_BARRIER,
        Opcode.PARTITION_ID,
        Opcode.REPLICA_ID,
    }
)


def is_start(x: HloInstruction) -> bool:
    """Of a collective."""
    wrapped = x.to_apply.root if x.opcode is Opcode.ASYNC_START else x
    return x.opcode in STARTS and wrapped.opcode in KIND


def is_done(x: HloInstruction) -> bool:
    return x.opcode in DONES and is_start(x.operand(0))


def is_blocking(x: HloInstruction) -> bool:
    """A collective that is over before the next instruction begins."""
    return x.opcode in KIND and x.opcode not in STARTS
