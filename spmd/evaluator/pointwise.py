"""Application of scalar computations (reducers, comparators, map functions) to entire arrays at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spmd.device import ReductionKind
from spmd.evaluator.device import Device
from spmd.evaluator.numerics import narrow, working_type
from spmd.evaluator.registry import EVALUATORS
from spmd.evaluator.session import Session
from spmd.evaluator.value import NDArray, Value, array_of
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConditionalAttrs, ParameterAttrs
from spmd.ops.checks import result_elements
from spmd.ops.combining import Combining
from spmd.ops.custom_call import is_sharding_annotation
from spmd.ops.reduction import identity_value
from spmd.ops.scalar_function import widened
from spmd.shape import ArrayShape, PrimitiveType, TupleShape

#: Opcodes that change nothing on scalars, whatever their attributes.
_SCALAR_IDENTITIES = frozenset({Opcode.BROADCAST, Opcode.COPY, Opcode.RESHAPE, Opcode.TRANSPOSE})
_NOT_POINTWISE = frozenset({Opcode.IOTA})


def apply_scalar(computation: HloComputation, arguments: Sequence[NDArray]) -> list[NDArray]:
    """Apply ``computation``, a function of scalars, to every element of ``arguments`` (broadcast against each other).

    Returns one array per result (per root tuple element). Elements are evaluated one by one unless it is purely
    elementwise.
    """
    if _is_pointwise(computation):
        return _evaluate_at_once(computation, arguments)
    return _evaluate_each(computation, arguments)


def made_of_elements(
    reducer: HloComputation, found: Sequence[Combining], elements: Sequence[NDArray]
) -> list[NDArray]:
    """Return for each result the part computed from the elements: the reducer is applied with neutral totals."""
    neutral = [_neutral(x.kind, x.element.array_shape.element_type) for x in found]
    made = apply_scalar(reducer, [*neutral, *elements])
    return [np.broadcast_to(x, elements[0].shape) for x in made]


def _neutral(kind: ReductionKind, element_type: PrimitiveType) -> NDArray:
    """Return the neutral element as a value of the type, which need not have infinities."""
    dtype = element_type.numpy
    if kind in (ReductionKind.MIN, ReductionKind.MAX):
        return np.asarray(identity_value(kind, element_type), dtype)
    return narrow(identity(kind, working_type(dtype)), dtype)


def in_working_types(
    reducer: HloComputation, totals: Sequence[NDArray], elements: Sequence[NDArray]
) -> tuple[HloComputation, list[NDArray], list[NDArray]]:
    """Return the reducer that rounds to no float narrower than f32, with its arguments."""
    wide = widened(reducer, HloModule("working_types"))
    if wide is None:
        return reducer, list(totals), list(elements)
    kinds = [x.array_shape.element_type.numpy for x in wide.parameters]
    arguments = [
        x if x.dtype == kind else x.astype(kind)
        for x, kind in zip((*totals, *elements), kinds, strict=True)
    ]
    return wide, arguments[: len(totals)], arguments[len(totals) :]


def _is_pointwise(computation: HloComputation, loops: bool = True) -> bool:
    return all(_is_pointwise_instruction(i, loops) for i in computation.instructions)


def _is_pointwise_instruction(instruction: HloInstruction, loops: bool) -> bool:
    """Return whether the instruction is pointwise. ``loops``: whether a loop may be evaluated. Within a branch it may
    not end for elements that did not choose the branch.
    """
    opcode = instruction.opcode
    if opcode in (Opcode.CALL, Opcode.FUSION):
        return _is_pointwise(instruction.to_apply, loops)
    if opcode is Opcode.CONDITIONAL or (loops and opcode is Opcode.WHILE):
        return all(_is_pointwise(callee, False) for callee in instruction.called_computations)
    if instruction.called_computations or opcode in _NOT_POINTWISE:
        return False
    if opcode in (Opcode.PARAMETER, Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT):
        return True
    if is_sharding_annotation(instruction):  # partly manual regions have them even in reducers
        return True
    return (
        opcode in EVALUATORS
        and _is_scalar(instruction)
        and all(map(_is_scalar, instruction.operands))
    )


def _is_scalar(instruction: HloInstruction) -> bool:
    shape = instruction.shape
    if isinstance(shape, TupleShape):
        return all(isinstance(e, ArrayShape) and e.rank == 0 for e in shape.elements)
    return isinstance(shape, ArrayShape) and shape.rank == 0


def _evaluate_at_once(computation: HloComputation, arguments: Sequence[Value]) -> list[NDArray]:
    value = _run(computation, arguments)
    return [array_of(v) for v in value] if isinstance(value, tuple) else [array_of(value)]


def _run(computation: HloComputation, arguments: Sequence[Value]) -> Value:
    values: dict[HloInstruction, Value] = {}
    for instruction in computation.post_order():
        operands = tuple([values[o] for o in instruction.operands])
        opcode = instruction.opcode
        if opcode is Opcode.PARAMETER:
            values[instruction] = arguments[instruction.attrs_as(ParameterAttrs).number]
        elif opcode in _SCALAR_IDENTITIES or is_sharding_annotation(instruction):
            values[instruction] = operands[0]
        elif opcode in (Opcode.CALL, Opcode.FUSION):
            values[instruction] = _run(instruction.to_apply, operands)
        elif opcode is Opcode.CONDITIONAL:
            values[instruction] = _conditional(instruction, operands)
        elif opcode is Opcode.WHILE:
            values[instruction] = _while(instruction, operands[0])
        else:
            values[instruction] = EVALUATORS[opcode](instruction, operands)
    return values[computation.root]


def _conditional(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Evaluate all branches, and select for each element by its selector."""
    selector, *arguments = operands
    pairs = zip(instruction.called_computations, arguments, strict=True)
    *results, chosen = [_run(branch, (argument,)) for branch, argument in pairs]
    predicated = instruction.attrs_as(ConditionalAttrs).predicated
    for number, result in enumerate(results):
        mask = array_of(selector) if predicated else array_of(selector) == number
        chosen = _where(mask, result, chosen)
    return chosen


def _while(instruction: HloInstruction, state: Value) -> Value:
    """Iterate until the condition is false for every element; elements for which it is false keep their state."""
    while True:
        mask = array_of(_run(instruction.while_condition, (state,)))
        if not mask.any():
            return state
        state = _where(mask, _run(instruction.while_body, (state,)), state)


def _where(mask: NDArray, x: Value, y: Value) -> Value:
    if isinstance(x, tuple) and isinstance(y, tuple):
        return tuple(_where(mask, a, b) for a, b in zip(x, y, strict=True))
    return np.where(mask, array_of(x), array_of(y))


def _evaluate_each(computation: HloComputation, arguments: Sequence[NDArray]) -> list[NDArray]:
    from spmd.evaluator.interpreter import (
        run_alone,
    )  # the interpreter needs the op families, and these need this file

    device = Device(0, 1, 1, Session(None))
    broadcast = np.broadcast_arrays(*arguments)
    root = computation.root.shape
    shapes = result_elements(root)
    results = [
        np.empty(broadcast[0].shape, s.element_type.numpy)
        for s in shapes
        if isinstance(s, ArrayShape)
    ]
    for index in np.ndindex(broadcast[0].shape):
        value = run_alone(computation, tuple(np.asarray(a[index]) for a in broadcast), device)
        parts = value if isinstance(value, tuple) else (value,)
        for result, part in zip(results, parts, strict=True):
            result[index] = array_of(part)
    return results


UFUNCS: dict[ReductionKind, np.ufunc] = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}


def identity(kind: ReductionKind, dtype: np.dtype[Any]) -> NDArray:
    """Return the element e with combine(e, x) = x, in a working type; -0 for floating sums, as 0 + -0 is 0."""
    if kind is ReductionKind.SUM and dtype.kind in "fc":
        return np.asarray(complex(-0.0, -0.0) if dtype.kind == "c" else -0.0, dtype)
    if kind in (ReductionKind.SUM, ReductionKind.OR, ReductionKind.XOR):
        return np.zeros((), dtype)
    if kind is ReductionKind.PRODUCT:
        return np.ones((), dtype)
    if kind is ReductionKind.AND:
        return np.invert(np.zeros((), dtype))
    high = kind is ReductionKind.MIN
    if dtype.kind == "f":
        return np.asarray(np.inf if high else -np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(limits.max if high else limits.min, dtype)
