"""custom-call: looked up by target. Annotations and memory moves are identities; manual regions stand in manual.py."""

from __future__ import annotations

import numpy as np

from spmd.custom_call import custom_call, register_custom_call
from spmd.custom_call_advice import advice_for
from spmd.errors import UnsupportedError
from spmd.evaluator.device import Device, Steps
from spmd.evaluator.manual import MANUAL_TARGETS, evaluate_manual
from spmd.evaluator.registry import evaluates_in_steps
from spmd.evaluator.sort import top_k
from spmd.evaluator.value import Operands, Value, array_of, packed
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.custom_call import ALLOCATE_BUFFER
from spmd.shape import as_array, as_tuple

_IDENTITIES = (
    "Sharding",
    "xla.sdy.FuncResultSharding",
    "MoveToHost",
    "MoveToDevice",
    "annotate_device_placement",
    "LayoutConstraint",
)


@evaluates_in_steps(Opcode.CUSTOM_CALL)
def evaluate_custom_call(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    target = instruction.attrs_as(CustomCallAttrs).target
    if target in MANUAL_TARGETS:
        return (yield from evaluate_manual(instruction, operands, device))
    evaluate = custom_call(target).evaluate
    if evaluate is None:
        raise UnsupportedError(
            f'{instruction!r}: nobody said how to evaluate custom-call target "{target}"; '
            f"{advice_for(target)}"
        )
    value: Value = evaluate(instruction, operands)
    return value


def _identity(instruction: HloInstruction, operands: Operands) -> Value:
    return packed(operands, instruction.shape) if len(operands) > 1 else operands[0]


for _target in _IDENTITIES:
    register_custom_call(_target, evaluate=_identity)


def _unwritten(instruction: HloInstruction, _: Operands) -> Value:
    """Whatever lies there: nan, -1 or true here, so that a program that reads it is found out."""
    shape = instruction.array_shape
    filler = -1 if shape.element_type.is_integer else np.nan
    with np.errstate(invalid="ignore"):
        return np.full(shape.dims, filler).astype(shape.element_type.numpy)


register_custom_call(ALLOCATE_BUFFER, evaluate=_unwritten)


def _top_k(instruction: HloInstruction, operands: Operands) -> Value:
    """(values, positions): the k largest along the last dimension; k is the result's size."""
    k = as_array(as_tuple(instruction.shape).elements[0]).dims[-1]
    return top_k(array_of(operands[0]), k, largest=True)


register_custom_call("TopK", evaluate=_top_k)
