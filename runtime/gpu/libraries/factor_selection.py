"""Scalar programs that turn the output of potrf into the results of a Cholesky kernel.

A matrix without a factor gets nan in its result.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from runtime.program.scalar_program import (
    ElementSignature,
    ScalarConstant,
    ScalarOp,
    ScalarProgram,
    ScalarStep,
)
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType

_S32, _PRED = PrimitiveType.S32, PrimitiveType.PRED
_PARTS = {PrimitiveType.C64: PrimitiveType.F32, PrimitiveType.C128: PrimitiveType.F64}


class _Program:
    """Builder of a scalar program. Registers are numbers: the parameters in order, then the result of each step."""

    def __init__(self, *parameters: PrimitiveType) -> None:
        self._kinds = list(parameters)
        self._parameters = parameters
        self._steps: list[ScalarStep] = []

    def op(
        self, opcode: Opcode, result: PrimitiveType, *operands: int, attrs: Attrs = NO_ATTRS
    ) -> int:
        kinds = tuple(self._kinds[each] for each in operands)
        return self._add(ScalarOp(ElementSignature(opcode, kinds, result, attrs), operands), result)

    def compare(self, direction: str, left: int, right: int) -> int:
        return self.op(Opcode.COMPARE, _PRED, left, right, attrs=CompareAttrs(direction))

    def select(self, condition: int, true: int, false: int) -> int:
        return self.op(Opcode.SELECT, self._kinds[true], condition, true, false)

    def constant(self, kind: PrimitiveType, value: float) -> int:
        bits = int.from_bytes(np.array(value, kind.numpy).tobytes(), "little")
        return self._add(ScalarConstant(kind, bits), kind)

    def _add(self, step: ScalarStep, kind: PrimitiveType) -> int:
        self._steps.append(step)
        self._kinds.append(kind)
        return len(self._kinds) - 1

    def has_factor(self, pivot: int, info: int) -> int:
        """Add the test of whether potrf found a factor, and return its register.

        pivot: last diagonal element of the factor, which must be positive and not nan. info: status of potrf, which
        must be 0.
        """
        kind = self._kinds[pivot]
        if kind in _PARTS:
            pivot = self.op(Opcode.REAL, _PARTS[kind], pivot)
        is_positive = self.compare("GT", pivot, self.constant(_PARTS.get(kind, kind), 0))
        is_factored = self.compare("EQ", info, self.constant(_S32, 0))
        return self.op(Opcode.AND, _PRED, is_positive, is_factored)

    def giving(self, result: int) -> ScalarProgram:
        """Return the finished program, whose result is register ``result``."""
        return ScalarProgram(self._parameters, tuple(self._steps), (result,))


@cache
def selection_program(kind: PrimitiveType, *, lower: bool, clears: bool) -> ScalarProgram:
    """Return the program that selects an element of a Cholesky result.

    Its parameters are the element of potrf's output, the last pivot, info, the row and the column of the element, and,
    unless ``clears``, the element of the operand. lower: the factor is the lower triangle. clears: elements of the
    other triangle become 0; otherwise they are copied from the operand.
    """
    others = () if clears else (kind,)
    program = _Program(kind, kind, _S32, PrimitiveType.S64, PrimitiveType.S64, *others)
    factor, pivot, info, row, column = range(5)
    has_factor = program.has_factor(pivot, info)
    nan = program.constant(kind, float("nan"))
    own = program.select(has_factor, factor, nan)
    if clears:
        other = program.select(has_factor, program.constant(kind, 0), nan)
    else:
        other = 5
    is_own = program.compare("GE" if lower else "LE", row, column)
    return program.giving(program.select(is_own, own, other))


@cache
def failure_program(kind: PrimitiveType) -> ScalarProgram:
    """Return the program of (last pivot, info) whose s32 result is 0 if the matrix has a factor, else 1."""
    program = _Program(kind, _S32)
    has_factor = program.has_factor(0, 1)
    zero, one = program.constant(_S32, 0), program.constant(_S32, 1)
    return program.giving(program.select(has_factor, zero, one))
