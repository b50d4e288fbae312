"""Evaluation of send and recv between devices: messages by channel, source and target.

A send never waits. A recv-done waits for its message, so it is a rendezvous of one device, ready when the message was
sent. Sources and targets are in the frontend attribute that XLA gives both sides:
``_xla_send_recv_source_target_pairs={{0,1},{1,2}}`` (partitions of one replica).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.errors import UnsupportedError
from spmd.evaluator.device import Device, Rendezvous, Steps
from spmd.evaluator.registry import evaluates, evaluates_in_steps, evaluates_on_device
from spmd.evaluator.value import TOKEN, Operands, Value
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ChannelAttrs
from spmd.ops.send_recv import PAIRS_ATTRIBUTE, source_target_pairs
from spmd.shape import ArrayShape, Shape, TupleShape, as_tuple


def _channel(instruction: HloInstruction) -> int:
    attrs = instruction.attrs_as(ChannelAttrs)
    if attrs.is_host_transfer or attrs.channel_id is None:
        raise UnsupportedError(f"{instruction!r}: transfers with the host are not evaluated")
    return attrs.channel_id


def _pairs(instruction: HloInstruction, device: Device) -> list[tuple[int, int]]:
    """Return the (source, target) devices within the replica of ``device``."""
    pairs = source_target_pairs(instruction)
    if pairs is None and instruction.opcode is Opcode.RECV_DONE:
        pairs = source_target_pairs(instruction.operand(0))
    if pairs is None:
        raise UnsupportedError(
            f"{instruction!r} does not say who sends to whom ({PAIRS_ATTRIBUTE})"
        )
    first = device.replica * device.num_partitions
    return [(first + source, first + target) for source, target in pairs]


@evaluates_on_device(Opcode.SEND)
def evaluate_send(instruction: HloInstruction, operands: Operands, device: Device) -> Value:
    """Evaluate. operands: data, token; result (data, context, token). A device that is no source sends nothing."""
    channel = _channel(instruction)
    for source, target in _pairs(instruction, device):
        if source == device.id:
            device.session.messages.setdefault((channel, source, target), []).append(operands[0])
    return (operands[0], np.zeros((), np.uint32), TOKEN)


@evaluates(Opcode.SEND_DONE)
def evaluate_send_done(_: HloInstruction, __: Operands) -> Value:
    return TOKEN


@evaluates(Opcode.RECV)
def evaluate_recv(instruction: HloInstruction, _: Operands) -> Value:
    """Return (data, context, token): the data has not arrived yet."""
    _channel(instruction)
    return (_zeros(as_tuple(instruction.shape).elements[0]), np.zeros((), np.uint32), TOKEN)


@evaluates_in_steps(Opcode.RECV_DONE)
def evaluate_recv_done(instruction: HloInstruction, _: Operands, device: Device) -> Steps:
    """Return (data, token); zeros on a device that is no target."""
    channel = _channel(instruction)
    sources = [s for s, t in _pairs(instruction, device) if t == device.id]
    if not sources:
        return (_zeros(as_tuple(instruction.shape).elements[0]), TOKEN)
    messages = device.session.messages.setdefault((channel, sources[0], device.id), [])

    def receive(_: Sequence[Value]) -> Sequence[Value]:
        return [messages.pop(0)]

    data = yield Rendezvous(instruction, (device.id,), (), receive, lambda: bool(messages))
    return (data, TOKEN)


def _zeros(shape: Shape) -> Value:
    if isinstance(shape, ArrayShape):
        return np.zeros(shape.dims, shape.element_type.numpy)
    if isinstance(shape, TupleShape):
        return tuple(map(_zeros, shape.elements))
    return TOKEN
