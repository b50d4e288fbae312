"""Scalar programs that turn the output of potrf into the results of a Cholesky kernel.

A matrix without a factor gets nan in its result.
"""

from __future__ import annotations

from functools import cache

from runtime.program.program_builder import ProgramBuilder
from runtime.program.scalar_program import ScalarProgram
from spmd.hlo import Opcode
from spmd.shape import COMPLEX_PARTS, PrimitiveType

_S32, _PRED = PrimitiveType.S32, PrimitiveType.PRED


def _has_factor(program: ProgramBuilder, kind: PrimitiveType, pivot: int, info: int) -> int:
    """Add the test of whether potrf found a factor, and return its register.

    pivot: last diagonal element, of type ``kind``, of the factor, which must be positive and not nan. info: status of
    potrf, which must be 0.
    """
    part = COMPLEX_PARTS.get(kind, kind)
    if part is not kind:
        pivot = program.op(Opcode.REAL, part, pivot)
    is_positive = program.compare("GT", pivot, program.constant(part, 0))
    is_factored = program.compare("EQ", info, program.constant(_S32, 0))
    return program.op(Opcode.AND, _PRED, is_positive, is_factored)


@cache
def selection_program(kind: PrimitiveType, *, lower: bool, clears: bool) -> ScalarProgram:
    """Return the program that selects an element of a Cholesky result.

    Its parameters are the element of potrf's output, the last pivot, info, the row and the column of the element, and,
    unless ``clears``, the element of the operand. lower: the factor is the lower triangle. clears: elements of the
    other triangle become 0; otherwise they are copied from the operand.
    """
    others = () if clears else (kind,)
    program = ProgramBuilder(kind, kind, _S32, PrimitiveType.S64, PrimitiveType.S64, *others)
    factor, pivot, info, row, column = range(5)
    has_factor = _has_factor(program, kind, pivot, info)
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
    program = ProgramBuilder(kind, _S32)
    has_factor = _has_factor(program, kind, 0, 1)
    zero, one = program.constant(_S32, 0), program.constant(_S32, 1)
    return program.giving(program.select(has_factor, zero, one))
