"""Instructions that begin a collective, end one, or do both."""

from __future__ import annotations

from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode_roles import DONES, STARTS, wrapped


def is_start(x: HloInstruction) -> bool:
    """Return whether ``x`` is the start of a collective."""
    return x.opcode in STARTS and wrapped(x).opcode in KIND


def is_done(x: HloInstruction) -> bool:
    return x.opcode in DONES and is_start(x.operand(0))


def is_blocking(x: HloInstruction) -> bool:
    """Return whether ``x`` is a collective that ends before the next instruction begins."""
    return x.opcode in KIND and x.opcode not in STARTS
