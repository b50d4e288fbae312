"""Trip counts of while loops, from their induction variables.

    state = (s32[] i, ...)    i starts at a constant, is compared with a constant, grows by a constant

The pattern is found through tuples, copies, calls and fusions, so it works before and after optimization.
"""

from __future__ import annotations

import re

from spmd.analysis.value_trace import Value, constant_int, holds_integer, trace
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import MIRRORED, CompareAttrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs, TupleIndexAttrs
from spmd.shape import PrimitiveType

#: XLA states an int64: a longer number is no trip count.
_KNOWN = re.compile(r'known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d{1,19})(?!\d)')


@dataclass(frozen=True, slots=True)
class InductionVariable:
    """Element ``index`` of the state, which counts from ``init`` by ``step`` while ``direction`` ``limit`` is true.

    It counts in ``element_type``, modulo its size.
    """

    index: int
    init: int
    step: int
    direction: str
    limit: int
    element_type: PrimitiveType


def trip_count(loop: HloInstruction) -> int | None:
    """Return the number of executions of the body, or None if unknown. XLA's ``known_trip_count`` is trusted."""
    stated = _KNOWN.search(loop.annotations.backend_config)
    if stated:
        return int(stated.group(1))
    variable = induction_variable(loop)
    trips = None if variable is None else _count(variable)
    if variable is None or trips is None or _wraps(variable, trips):
        return None
    return trips


def _count(v: InductionVariable) -> int | None:
    distance = v.limit - v.init
    if v.direction == "LT" and v.step > 0:
        return max(0, -(-distance // v.step))
    if v.direction == "LE" and v.step > 0:
        return max(0, distance // v.step + 1)
    if v.direction == "GT" and v.step < 0:
        return max(0, -(-distance // v.step))
    if v.direction == "GE" and v.step < 0:
        return max(0, distance // v.step + 1)
    if v.direction == "NE" and v.step and distance % v.step == 0 and distance // v.step >= 0:
        return distance // v.step
    return None


def _wraps(v: InductionVariable, trips: int) -> bool:
    """Return whether the counter wraps: the value that would end the loop does not fit its type."""
    return not holds_integer(v.element_type, v.init + trips * v.step)


def induction_variable(loop: HloInstruction) -> InductionVariable | None:
    """Return the variable that the condition compares, if it counts in constant steps between constants."""
    condition = trace(Value(loop.while_condition.root))
    if condition.instruction.opcode is not Opcode.COMPARE:
        return None
    direction = condition.instruction.attrs_as(CompareAttrs).direction
    left, right = condition.operand(0), condition.operand(1)
    for variable, limit, compared in (
        (left, right, direction),
        (right, left, MIRRORED[direction]),
    ):
        index = state_index(variable)
        if index is None:
            continue
        bound, counted = _loop_constant(loop, limit), counting(loop, index)
        if bound is not None and counted is not None:
            kind = trace(_next(loop, index)).instruction.array_shape.element_type
            return InductionVariable(index, *counted, compared, bound, kind)
    return None


def counting(loop: HloInstruction, index: int) -> tuple[int, int] | None:
    """Return the start of element ``index`` of the state and the increment per trip; None if one is unknown."""
    init, step = constant_int(_initial(loop, index)), _step(loop, index)
    return None if init is None or step is None else (init, step)


def state_index(value: Value) -> int | None:
    """Return the state element that a value of the loop's body or condition reads; -1 if the state is no tuple."""
    value = trace(value)
    x = value.instruction
    if (
        x.opcode is Opcode.PARAMETER
        and value.caller is None
        and x.attrs_as(ParameterAttrs).number == 0
    ):
        return -1
    if x.opcode is not Opcode.GET_TUPLE_ELEMENT:
        return None
    source = trace(value.operand(0))
    if source.instruction.opcode is not Opcode.PARAMETER or source.caller is not None:
        return None
    return x.attrs_as(TupleIndexAttrs).index


def _initial(loop: HloInstruction, index: int) -> Value:
    """Return element ``index`` of the state before the loop (the state itself if it is not a known tuple)."""
    state = trace(Value(loop.operand(0)))
    if index >= 0 and state.instruction.opcode is Opcode.TUPLE:
        return state.operand(index)
    return state


def _next(loop: HloInstruction, index: int) -> Value:
    """Return element ``index`` of the body's result."""
    root = trace(Value(loop.while_body.root))
    if index >= 0 and root.instruction.opcode is Opcode.TUPLE:
        return root.operand(index)
    return root


def _loop_constant(loop: HloInstruction, value: Value) -> int | None:
    """Return the value of a constant of the condition or body, or of a state element that is a constant and never
    changes.
    """
    index = state_index(value)
    if index is None:
        return constant_int(value)
    if state_index(_next(loop, index)) != index:
        return None
    return constant_int(_initial(loop, index))


def _step(loop: HloInstruction, index: int) -> int | None:
    return _grown(loop, index, _next(loop, index)) or None


def _grown(loop: HloInstruction, index: int, value: Value) -> int | None:
    """Return ``value`` minus element ``index`` of the state if it is a constant, else None."""
    grown = 0
    value = trace(value)
    while state_index(value) != index:
        opcode = value.instruction.opcode
        if opcode not in (Opcode.ADD, Opcode.SUBTRACT):
            return None
        rest, constant = value.operand(0), _loop_constant(loop, value.operand(1))
        if constant is None and opcode is Opcode.ADD:
            rest, constant = value.operand(1), _loop_constant(loop, rest)
        if constant is None:
            return None
        grown += constant if opcode is Opcode.ADD else -constant
        value = trace(rest)
    return grown
