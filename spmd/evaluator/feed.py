"""Evaluation of infeed and outfeed: the host's values are stored outside the module (spmd/host_feed.py)."""

from __future__ import annotations

from spmd.evaluator.device import Device
from spmd.evaluator.registry import evaluates_on_device
from spmd.evaluator.value import TOKEN, Operands, Value, array_of, flatten, unflatten
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.host_feed import fed_shape


@evaluates_on_device(Opcode.INFEED)
def evaluate_infeed(instruction: HloInstruction, _: Operands, device: Device) -> Value:
    """Return (data, token)."""
    arrays = device.session.feed.take(instruction, device.id)
    return (unflatten(fed_shape(instruction), iter(arrays)), TOKEN)


@evaluates_on_device(Opcode.OUTFEED)
def evaluate_outfeed(instruction: HloInstruction, operands: Operands, device: Device) -> Value:
    """Give the data to the host. operands: data, token."""
    arrays = [array_of(leaf) for leaf in flatten(operands[0]) if leaf is not TOKEN]
    device.session.feed.put(instruction, device.id, arrays)
    return TOKEN
