"""Evaluation of call, fusion, while, conditional, scan, and the generic asynchronous wrapper."""

from __future__ import annotations

import itertools

import numpy as np

from spmd.evaluator.device import Device, Steps
from spmd.evaluator.interpreter import run_computation, run_instruction
from spmd.evaluator.registry import evaluates, evaluates_in_steps
from spmd.evaluator.value import (
    NDArray,
    Operands,
    PerDevice,
    Value,
    array_of,
    arrays_of,
    packed,
    tuple_of,
)
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConditionalAttrs, ScanAttrs
from spmd.ops.checks import result_elements
from spmd.shape import as_array


@evaluates_in_steps(Opcode.CALL, Opcode.FUSION)
def evaluate_call(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    return (yield from run_computation(instruction.to_apply, operands, device))


@evaluates_in_steps(Opcode.WHILE)
def evaluate_while(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    (state,) = operands
    on_trip = device.session.tables.on_trip
    for trip in itertools.count():
        if on_trip is not None:
            on_trip(instruction, trip)
        if isinstance(state, PerDevice):
            # The body entered a manual region that it does not leave: the other trips run on each
            # device.
            return (yield from run_instruction(instruction, (state,), device))
        more = yield from run_computation(instruction.while_condition, (state,), device)
        if not array_of(more):
            return state
        state = yield from run_computation(instruction.while_body, (state,), device)
    raise AssertionError("a loop ends when its condition fails")


@evaluates_in_steps(Opcode.CONDITIONAL)
def evaluate_conditional(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Evaluate the chosen branch: a predicate chooses between two; an index out of range takes the last one."""
    selector, *arguments = operands
    if instruction.attrs_as(ConditionalAttrs).predicated:
        branch = 0 if array_of(selector) else 1
    else:
        branch = int(array_of(selector))
        if not 0 <= branch < len(arguments):
            branch = len(arguments) - 1
    computation = instruction.called_computations[branch]
    return (yield from run_computation(computation, (arguments[branch],), device))


@evaluates_in_steps(Opcode.SCAN)
def evaluate_scan(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Evaluate a scan. operands: inputs, then initial carries. Function: (input slices, carries) -> (outputs, carries).

    The result is the outputs stacked along the scanned dimension, then the last carries.
    """
    attrs = instruction.attrs_as(ScanAttrs)
    arrays = arrays_of(operands)
    split = len(arrays) - attrs.num_carries
    inputs, carries = arrays[:split], arrays[split:]
    stacks = _empty_stacks(instruction, attrs.num_carries)
    length = (*inputs, *stacks)[0].shape[attrs.dimension]
    for trip in range(length):
        at = length - 1 - trip if attrs.is_reverse else trip
        slices = [np.asarray(np.take(x, at, axis=attrs.dimension)) for x in inputs]
        value = yield from run_computation(instruction.to_apply, (*slices, *carries), device)
        parts = arrays_of(value if isinstance(value, tuple) else (value,))
        for stack, part in zip(stacks, parts, strict=False):
            stack[(slice(None),) * attrs.dimension + (at,)] = part
        carries = parts[len(stacks) :]
    return packed([*stacks, *carries], instruction.shape)


def _empty_stacks(instruction: HloInstruction, num_carries: int) -> list[NDArray]:
    """Return one array per stacked output; the outputs precede the carries in the result."""
    shapes = [as_array(s) for s in result_elements(instruction.shape)]
    return [np.empty(s.dims, s.element_type.numpy) for s in shapes[: len(shapes) - num_carries]]


@evaluates_in_steps(Opcode.ASYNC_START)
def evaluate_async_start(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Run the wrapped computation at the start; return (operands, result, context)."""
    result = yield from run_computation(instruction.to_apply, operands, device)
    return (operands, result, ())


@evaluates(Opcode.COPY_START)
def evaluate_copy_start(_: HloInstruction, operands: Operands) -> Value:
    """Return (destination, source, context)."""
    return (operands[0], operands[0], np.zeros((), np.uint32))


@evaluates(Opcode.COPY_DONE)
def evaluate_copy_done(_: HloInstruction, operands: Operands) -> Value:
    return tuple_of(operands[0])[0]
