"""Evaluation of constant, iota, and the device's own numbers: partition-id, replica-id."""

from __future__ import annotations

import numpy as np

from spmd.errors import UnsupportedError
from spmd.evaluator.device import Device
from spmd.evaluator.numerics import narrow
from spmd.evaluator.registry import evaluates, evaluates_on_device
from spmd.evaluator.value import Operands, Value
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.literal import Literal
from spmd.ops.attrs import ConstantAttrs, IotaAttrs


@evaluates(Opcode.CONSTANT)
def evaluate_constant(instruction: HloInstruction, _: Operands) -> Value:
    literal = instruction.attrs_as(ConstantAttrs).literal
    if literal is None:
        raise UnsupportedError(
            f"{instruction!r}: the text elides this constant ({{...}}), so it has no value; print it in full"
        )
    return _literal_value(literal)


def _literal_value(literal: Literal) -> Value:
    if literal.array is not None:
        return literal.array
    return tuple(_literal_value(element) for element in literal.elements)


@evaluates(Opcode.IOTA)
def evaluate_iota(instruction: HloInstruction, _: Operands) -> Value:
    shape = instruction.array_shape
    dimension = instruction.attrs_as(IotaAttrs).dimension
    along = np.arange(shape.dims[dimension])
    sizes = [-1 if d == dimension else 1 for d in range(shape.rank)]
    counts = narrow(
        along if not shape.element_type.is_floating else along.astype(np.float64),
        shape.element_type.numpy,
    )
    return np.broadcast_to(counts.reshape(sizes), shape.dims)


@evaluates_on_device(Opcode.PARTITION_ID)
def evaluate_partition_id(_: HloInstruction, __: Operands, device: Device) -> Value:
    return np.array(device.partition, np.uint32)


@evaluates_on_device(Opcode.REPLICA_ID)
def evaluate_replica_id(_: HloInstruction, __: Operands, device: Device) -> Value:
    return np.array(device.replica, np.uint32)
