"""Evaluation of custom calls, by target. Annotations and memory moves are identities; manual regions are in
manual.py.
"""

from __future__ import annotations

import numpy as np

from spmd.custom_call import advice_for, custom_call, register_custom_call
from spmd.errors import UnsupportedError
from spmd.evaluator.device import Device, Steps
from spmd.evaluator.interpreter import run_computation
from spmd.evaluator.manual import MANUAL_TARGETS, evaluate_manual
from spmd.evaluator.registry import evaluates_in_steps
from spmd.evaluator.sort import top_k
from spmd.evaluator.value import (
    NDArray,
    Operands,
    Value,
    array_of,
    flatten,
    packed,
    tuple_of,
    unflatten,
)
from spmd.hlo.host_functions import NO_FUNCTIONS, Callback
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.host_callback import call_back, callback_index, callback_signature
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.custom_call import (
    ALLOCATE_BUFFER,
    CUSTOM_PARTITIONING,
    DYNAMIC_REGION,
    PAD_TO_STATIC,
    SHARDING_ANNOTATIONS,
    SLICE_TO_DYNAMIC,
)
from spmd.shape import as_array, as_tuple

_IDENTITIES = (
    *SHARDING_ANNOTATIONS,
    "MoveToHost",
    "MoveToDevice",
    "annotate_device_placement",
    "LayoutConstraint",
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "xla.sdy.PropagationBarrier",
)


@evaluates_in_steps(Opcode.CUSTOM_CALL)
def evaluate_custom_call(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    target = instruction.attrs_as(CustomCallAttrs).target
    if target == DYNAMIC_REGION:
        return (yield from evaluate_dynamic_region(instruction, operands, device))
    if target in MANUAL_TARGETS:
        return (yield from evaluate_manual(instruction, operands, device))
    evaluate = custom_call(target).evaluate
    if evaluate is None and target == CUSTOM_PARTITIONING and instruction.called_computations:
        return (yield from run_computation(instruction.called_computations[0], operands, device))
    number = callback_index(instruction)
    module = device.session.module
    functions = NO_FUNCTIONS if module is None else module.host_functions
    if evaluate is None and number is not None and number < len(functions.callbacks):
        return _call_back(instruction, operands, functions.callbacks[number])
    if evaluate is None:
        raise UnsupportedError(
            f'{instruction!r}: no evaluation is registered for custom-call target "{target}"; '
            f"{advice_for(target)}"
        )
    value: Value = evaluate(instruction, operands)
    return value


def evaluate_dynamic_region(
    instruction: HloInstruction, operands: Operands, device: Device
) -> Steps:
    """Return the arrays of the called computation, with zeros up to their bounds."""
    (computation,) = instruction.called_computations
    value = yield from run_computation(computation, operands, device)
    shapes = as_tuple(instruction.shape).elements
    return tuple(
        _at_bounds(array_of(part), as_array(shape).dims)
        for part, shape in zip(tuple_of(value), shapes, strict=True)
    )


def _at_bounds(array: NDArray, bounds: tuple[int, ...]) -> NDArray:
    if array.shape == bounds:
        return array
    return np.pad(array, [(0, bound - n) for n, bound in zip(array.shape, bounds, strict=True)])


def _cut(_: HloInstruction, operands: Operands) -> Value:
    """Return an array cut to the sizes given by the other operands."""
    x, *sizes = map(array_of, operands)
    return x[tuple(slice(int(size)) for size in sizes)]


def _with_sizes(instruction: HloInstruction, operands: Operands) -> Value:
    """Return an array at its bounds, and its sizes."""
    x = array_of(operands[0])
    bounds = as_array(as_tuple(instruction.shape).elements[0]).dims
    return (_at_bounds(x, bounds), *(np.array(size, np.int32) for size in x.shape))


register_custom_call(SLICE_TO_DYNAMIC, evaluate=_cut)
register_custom_call(PAD_TO_STATIC, evaluate=_with_sizes)


def _call_back(instruction: HloInstruction, operands: Operands, function: Callback) -> Value:
    arrays = [x for operand in operands for x in flatten(operand) if isinstance(x, np.ndarray)]
    found = call_back(callback_signature(instruction), function, arrays)
    return unflatten(instruction.shape, iter(found))


def _identity(instruction: HloInstruction, operands: Operands) -> Value:
    return packed(operands, instruction.shape) if len(operands) > 1 else operands[0]


for _target in _IDENTITIES:
    register_custom_call(_target, evaluate=_identity)


def _nothing(_: HloInstruction, __: Operands) -> Value:
    """Return a tuple of no parts: a sharding group has no result."""
    return ()


register_custom_call("xla.sdy.ShardingGroup", evaluate=_nothing)


def _uninitialized(instruction: HloInstruction, _: Operands) -> Value:
    """Return memory of unspecified content: nan, -1 or true here, so that a program that reads it is detected."""
    shape = instruction.array_shape
    filler = -1 if shape.element_type.is_integer else np.nan
    with np.errstate(invalid="ignore"):
        return np.full(shape.dims, filler).astype(shape.element_type.numpy)


register_custom_call(ALLOCATE_BUFFER, evaluate=_uninitialized)


def _top_k(instruction: HloInstruction, operands: Operands) -> Value:
    """Return (values, positions): the k largest along the last dimension; k is the result's size."""
    k = as_array(as_tuple(instruction.shape).elements[0]).dims[-1]
    return top_k(array_of(operands[0]), k, largest=True)


register_custom_call("TopK", evaluate=_top_k)
