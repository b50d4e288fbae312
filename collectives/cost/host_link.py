"""Copies between the memories of a device and its host, which have a link of their own in each direction."""

from __future__ import annotations

from collections.abc import Mapping

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import wrapped
from spmd.ops.custom_call import custom_call_target
from spmd.shape import HOST_MEMORY, ArrayShape, leaves

#: Names of the links, as ``LinkUse.exchange`` has them.
TO_HOST, TO_DEVICE = "device to host", "host to device"
#: Targets of custom calls that move a value between device and host memory, and the link that each uses.
HOST_MOVES: Mapping[str, str] = {"MoveToHost": TO_HOST, "MoveToDevice": TO_DEVICE}


def host_link(x: HloInstruction) -> str | None:
    """Return the link over which ``x`` copies between the memories of host and device, or None if it does not.

    Of an asynchronous copy, its start does.
    """
    x = wrapped(x)
    if x.opcode is Opcode.CUSTOM_CALL:
        return HOST_MOVES.get(custom_call_target(x))
    if x.opcode not in (Opcode.COPY, Opcode.COPY_START):
        return None
    copy = next((leaf for _, leaf in leaves(x.shape)), None)
    target, source = (
        isinstance(one, ArrayShape) and one.memory_space == HOST_MEMORY
        for one in (copy, x.operand(0).shape)
    )
    if target == source:
        return None
    return TO_HOST if target else TO_DEVICE


def ended_start(x: HloInstruction) -> HloInstruction | None:
    """Return the start of the asynchronous copy or computation that ``x`` ends, or None if it ends none."""
    if x.opcode not in (Opcode.COPY_DONE, Opcode.ASYNC_DONE):
        return None
    start = x.operand(0)
    while start.opcode is Opcode.ASYNC_UPDATE:
        start = start.operand(0)
    return start
