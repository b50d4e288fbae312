"""Epilogues that a library computes in the call of a matrix product: D = act(alpha * A @ B + beta * C + bias).

    y = max(x @ w + b, 0)       alpha 1, bias b, relu
    y = x @ w + r               alpha 1, beta 1, C r
    p = p - 0.1 * (x.T @ g)     alpha -0.1, beta 1, C p
    y = bf16(x @ w)             alpha 1, D of type bf16

The scalar program of an epilogue is evaluated symbolically. A library sums in f32 or f64 and rounds once, to the type
of D. So a program may round in between to that type, or to f32 if D is narrower, but to no other type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from runtime.program.records.loop import LoopLeaf, OperandElements
from runtime.program.scalar_program import ScalarConstant, ScalarProgram, ScalarStep
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

_BF16, _F16, _F32, _F64 = (
    PrimitiveType.BF16,
    PrimitiveType.F16,
    PrimitiveType.F32,
    PrimitiveType.F64,
)
#: (type of A and B, type of C, D and bias) of the products that a library computes with epilogues.
EPILOGUE_TYPES = frozenset(
    {(_BF16, _BF16), (_BF16, _F32), (_F16, _F16), (_F16, _F32), (_F32, _F32), (_F64, _F64)}
)


@dataclass(frozen=True, slots=True)
class GemmEpilogue:
    """Epilogue alpha * A @ B + beta * C + bias, or the maximum of that and 0 if ``relu`` is True.

    addend: number of the leaf that reads C at the index of D, or None. bias: number of the leaf that reads a vector
    along the columns of D, or None.
    """

    alpha: float
    beta: float = 0.0
    addend: int | None = None
    bias: int | None = None
    relu: bool = False


@dataclass(frozen=True, slots=True)
class _Sum:
    """Value of a register: the sum of parameters times their coefficients ``terms``.

    relu: the value is the maximum of this sum and 0.
    """

    terms: Mapping[int, float]
    relu: bool = False


#: What is known of a register: a sum, the number that is constant, or None for anything else.
_Value: TypeAlias = _Sum | float | None


def gemm_epilogue(
    program: ScalarProgram, leaves: Sequence[LoopLeaf], product: int, first_column: int
) -> GemmEpilogue | None:
    """Return the epilogue that ``program`` computes, or None if no library does.

    leaves: what the parameters of the program read at each index of the result, whose views have its dimensions. The
    leaf that reads operand number ``product`` reads the elements of A @ B. first_column: first of the dimensions that
    are columns of the product.
    """
    parameters = [
        n
        for n, leaf in enumerate(leaves)
        if isinstance(leaf, OperandElements) and leaf.operand == product
    ]
    value = _result(program)
    if not isinstance(value, _Sum) or len(parameters) != 1:
        return None
    terms = dict(value.terms)
    alpha = terms.pop(parameters[0], 0.0)
    result = program.kind_of(program.results[0])
    if not alpha or not _is_packed(leaves[parameters[0]]):
        return None
    beta, addend, bias = 0.0, None, None
    for n, factor in terms.items():
        if program.kind_of(n) is not result or not factor:
            return None
        if addend is None and _is_packed(leaves[n]):
            beta, addend = factor, n
        elif bias is None and factor == 1.0 and _is_row(leaves[n], first_column):
            bias = n
        else:
            return None
    return GemmEpilogue(alpha, beta, addend, bias, value.relu)


def _is_packed(leaf: LoopLeaf) -> bool:
    """Return whether ``leaf`` reads an array without gaps in row-major order."""
    return isinstance(leaf, OperandElements) and not leaf.shifts and leaf.view.is_packed


def _is_row(leaf: LoopLeaf, first_column: int) -> bool:
    """Return whether ``leaf`` reads a vector without gaps along the dimensions from ``first_column`` on."""
    if not isinstance(leaf, OperandElements) or leaf.shifts:
        return False
    view = leaf.view
    before = zip(view.dims[:first_column], view.strides[:first_column], strict=True)
    row = StridedView(view.element_type, view.dims[first_column:], view.strides[first_column:])
    return row.is_packed and all(size == 1 or stride == 0 for size, stride in before)


def _result(program: ScalarProgram) -> _Value:
    """Return the value of the only result of ``program``; None if there are several."""
    if len(program.results) != 1:
        return None
    result = program.kind_of(program.results[0])
    values: list[_Value] = [
        _Sum({n: 1.0}) if _holds(kind, result) else None
        for n, kind in enumerate(program.parameters)
    ]
    for step in program.steps:
        values.append(_value(step, values, result))
    return values[program.results[0]]


def _holds(kind: PrimitiveType, result: PrimitiveType) -> bool:
    """Return whether a value of type ``kind`` need not be rounded to it before it is rounded to ``result``."""
    return kind is result or (kind is _F32 and result in (_BF16, _F16))


def _value(step: ScalarStep, values: Sequence[_Value], result: PrimitiveType) -> _Value:
    """Return the value of ``step``; None if its type does not hold the ``result``."""
    if isinstance(step, ScalarConstant):
        return _number(step) if _holds(step.kind, result) else None
    operands = [values[n] for n in step.operands]
    if not _holds(step.signature.result, result):
        return None
    match step.signature.opcode, operands:
        case Opcode.CONVERT, [value]:
            return value
        case Opcode.MAXIMUM, [_Sum(terms=terms), 0.0] | [0.0, _Sum(terms=terms)]:
            return _Sum(terms, relu=True)
        case Opcode.NEGATE, [value]:
            return _scaled(value, -1.0)
        case Opcode.ADD, [one, other]:
            return _sum(one, other)
        case Opcode.SUBTRACT, [one, other]:
            return _sum(one, _scaled(other, -1.0))
        case Opcode.MULTIPLY, [value, float(factor)] | [float(factor), value]:
            return _scaled(value, factor)
        case Opcode.DIVIDE, [value, float(factor)] if abs(math.frexp(factor)[0]) == 0.5:
            return _scaled(value, 1.0 / factor)  # exact for a power of two
    return None


def _number(constant: ScalarConstant) -> float:
    memory = constant.bits.to_bytes(constant.kind.byte_size, "little")
    return float(np.frombuffer(memory, constant.kind.numpy)[0])


def _scaled(value: _Value, factor: float) -> _Value:
    """Return ``value`` times ``factor``, or None if that would round the terms of a sum one by one."""
    if not isinstance(value, _Sum) or value.relu or not math.isfinite(factor):
        return None
    if len(value.terms) > 1 and abs(factor) != 1.0:
        return None
    return _Sum({n: factor * own for n, own in value.terms.items()})


def _sum(one: _Value, other: _Value) -> _Value:
    """Return the sum, or None if it is none of two sums without common terms."""
    if not isinstance(one, _Sum) or not isinstance(other, _Sum) or one.relu or other.relu:
        return None
    if one.terms.keys() & other.terms.keys():
        return None
    return _Sum({**one.terms, **other.terms})
