"""Builder of scalar programs, step by step."""

from __future__ import annotations

from functools import cache

import numpy as np

from runtime.program.records.loop import OperandElements, StartsStage
from runtime.program.scalar_program import (
    ElementSignature,
    ScalarConstant,
    ScalarOp,
    ScalarProgram,
    ScalarStep,
)
from runtime.program.strides import StridedView
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType


class ProgramBuilder:
    """Builder of a scalar program. Registers are numbers: the parameters in order, then the result of each step."""

    def __init__(self, *parameters: PrimitiveType) -> None:
        self._kinds = list(parameters)
        self._parameters = parameters
        self._steps: list[ScalarStep] = []

    def op(
        self, opcode: Opcode, result: PrimitiveType, *operands: int, attrs: Attrs = NO_ATTRS
    ) -> int:
        """Add an operation on the registers ``operands``, and return the register of its result."""
        kinds = tuple(self._kinds[each] for each in operands)
        return self._add(ScalarOp(ElementSignature(opcode, kinds, result, attrs), operands), result)

    def compare(self, direction: str, left: int, right: int) -> int:
        """Add the comparison of two registers, and return the register of its result."""
        attrs = CompareAttrs(direction)
        return self.op(Opcode.COMPARE, PrimitiveType.PRED, left, right, attrs=attrs)

    def select(self, condition: int, true: int, false: int) -> int:
        """Add the choice between two registers, and return the register of its result."""
        return self.op(Opcode.SELECT, self._kinds[true], condition, true, false)

    def converted(self, register: int, kind: PrimitiveType) -> int:
        """Return a register of type ``kind`` with the value of ``register``: that one, or its conversion."""
        if self._kinds[register] is kind:
            return register
        return self.op(Opcode.CONVERT, kind, register)

    def constant(self, kind: PrimitiveType, value: float) -> int:
        """Add a constant, and return its register."""
        bits = int.from_bytes(np.array(value, kind.numpy).tobytes(), "little")
        return self._add(ScalarConstant(kind, bits), kind)

    def _add(self, step: ScalarStep, kind: PrimitiveType) -> int:
        self._steps.append(step)
        self._kinds.append(kind)
        return len(self._kinds) - 1

    def giving(self, *results: int) -> ScalarProgram:
        """Return the finished program, whose results are the registers ``results``."""
        return ScalarProgram(self._parameters, tuple(self._steps), results)


@cache
def index_stage(kinds: tuple[PrimitiveType, ...], first: int) -> StartsStage:
    """Return a stage whose starts are the scalar operands from number ``first`` on, of types ``kinds``, as s64.

    Values of u64 are clamped to 2^63 - 1.
    """
    program = ProgramBuilder(*kinds)
    starts = []
    for n, kind in enumerate(kinds):
        register = n
        if kind is PrimitiveType.U64:
            register = program.op(Opcode.MINIMUM, kind, n, program.constant(kind, (1 << 63) - 1))
        starts.append(program.converted(register, PrimitiveType.S64))
    leaves = [OperandElements(n, StridedView(kind, (), ())) for n, kind in enumerate(kinds, first)]
    return StartsStage(program.giving(*starts), tuple(leaves))
