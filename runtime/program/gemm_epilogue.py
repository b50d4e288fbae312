"""Epilogues that a library computes in the call of a matrix product: D = act(alpha * A @ B + beta * C + bias).

    y = max(x @ w + b, 0)       alpha 1, bias b, relu
    y = gelu(x @ w + b)         alpha 1, bias b, gelu; x @ w + b may be a second result
    d = dgelu(s) * (g @ w.T)    alpha 1, gradient of gelu at s
    y = x @ w + r               alpha 1, beta 1, C r
    p = p - 0.1 * (x.T @ g)     alpha -0.1, beta 1, C p
    y = bf16(x @ w)             alpha 1, D of type bf16
    y = bf16(s * (x @ w))       alpha 1, scale s: a number in memory, if x and w are f8

The scalar program of an epilogue is evaluated symbolically. A library sums in f32 or f64, computes the activation of
the sum, and rounds once, to the type of D. So a program may round in between to that type, or to f32 if D is narrower,
but to no other type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import TypeAlias

from runtime.program.gelu import gelu_argument, gelu_gradient
from runtime.program.polynomials import Polynomial, Polynomials, holds, number
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
_F8 = frozenset({PrimitiveType.F8E4M3FN, PrimitiveType.F8E5M2})
#: Largest number of scales: one for each operand.
_MOST_SCALES = 2
#: Least divisor of the sizes along the columns of the matrix of arguments that gelu writes or its gradient reads
#: (cublasLt.h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
AUX_MULTIPLE = 8


class Activation(Enum):
    """Function that a library computes of the sum. GELU is the tanh approximation of gelu (see ``gelu``)."""

    RELU = "relu"
    GELU = "gelu"
    GELU_GRADIENT = "gelu gradient"


@dataclass(frozen=True, slots=True)
class GemmEpilogue:
    """Epilogue D = act(alpha * A @ B + beta * C + bias), or without ``activation`` the sum.

    scales: numbers of leaves that read one f32 number each, by which A @ B is multiplied as well. addend: number of the
    leaf that reads C at the index of D, or None. bias: number of the leaf that reads a vector along the columns of D,
    or None. If the activation is GELU_GRADIENT, leaf ``aux`` reads the argument of gelu at the index of D, and the sum
    is multiplied by the gradient there. ``result`` is the number of the program's result that is D, and ``saved`` that
    of a result that is the sum, or None.
    """

    alpha: float
    beta: float = 0.0
    addend: int | None = None
    bias: int | None = None
    activation: Activation | None = None
    aux: int | None = None
    result: int = 0
    saved: int | None = None
    scales: tuple[int, ...] = ()

    def suits(self, lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType) -> bool:
        """Return whether a library computes this epilogue of operands of types ``lhs`` and ``rhs``, for a D of type
        ``result`` (cublasLt.h, cublasLtMatmul: supported types of f8 products).
        """
        if not {lhs, rhs} <= _F8:
            return lhs is rhs and (lhs, result) in EPILOGUE_TYPES and not self.scales
        if lhs is rhs is PrimitiveType.F8E5M2 or result not in (_BF16, _F16, _F32):
            return False
        has_bias = self.bias is not None
        return self.activation in (None, Activation.RELU) and not (has_bias and result is _F32)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Value of a register: the sum of parameters times their coefficients ``terms``.

    scales: by parameter, others that read single numbers by which it is multiplied as well. relu: the value is the
    maximum of this sum and 0.
    """

    terms: Mapping[int, float]
    relu: bool = False
    scales: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Value of a register: the product of the parameters ``factors``, which read single numbers."""

    factors: tuple[int, ...]


#: What is known of a register: a sum, a scale, the number that is constant, or None for anything else.
_Value: TypeAlias = _Sum | _Scale | float | None


def gemm_epilogue(
    program: ScalarProgram,
    leaves: Sequence[LoopLeaf],
    product: int,
    first_column: int,
    *,
    keeps_product: bool = False,
) -> GemmEpilogue | None:
    """Return the epilogue that ``program`` computes, or None if no library does.

    leaves: what the parameters of the program read at each index of the result, whose views have its dimensions. The
    leaf that reads operand number ``product`` reads the elements of A @ B. first_column: first of the dimensions that
    are columns of the product. keeps_product: A @ B is a result besides those of the program, which a library writes
    only as the argument of gelu.
    """
    parameters = [
        n
        for n, leaf in enumerate(leaves)
        if isinstance(leaf, OperandElements) and leaf.operand == product
    ]
    if len(parameters) != 1 or not _is_packed(leaves[parameters[0]]):
        return None
    reader = _Reader(program, leaves, parameters[0], first_column)
    numbers = [n for n, leaf in enumerate(leaves) if _is_number(leaf)]
    value = None if keeps_product else _result(program, frozenset(numbers))
    if isinstance(value, _Sum):
        return reader.of_sum(value, Activation.RELU if value.relu else None)
    return reader.of_gelu(keeps_product=keeps_product) or (
        None if keeps_product else reader.of_gradient()
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Epilogues of ``program``, whose parameter ``product`` is A @ B. Others as for ``gemm_epilogue``."""

    program: ScalarProgram
    leaves: Sequence[LoopLeaf]
    product: int
    first_column: int

    def of_sum(self, value: _Sum, activation: Activation | None) -> GemmEpilogue | None:
        """Return the epilogue that is the ``activation`` of the sum ``value``, or None."""
        terms = value.terms
        alpha = terms.get(self.product, 0.0)
        scales = value.scales.get(self.product, ())
        if not alpha or len(scales) > _MOST_SCALES or not value.scales.keys() <= {self.product}:
            return None
        beta, addend, bias = 0.0, None, None
        for n, factor in terms.items():
            if n == self.product:
                continue
            if not self._has_type_of_results(n) or not factor:
                return None
            if addend is None and _is_packed(self.leaves[n]):
                beta, addend = factor, n
            elif bias is None and factor == 1.0 and _is_row(self.leaves[n], self.first_column):
                bias = n
            else:
                return None
        return GemmEpilogue(alpha, beta, addend, bias, activation, scales=scales)

    def of_gelu(self, *, keeps_product: bool) -> GemmEpilogue | None:
        """Return the epilogue that is gelu of a sum, which may be the other result, or None."""
        results = self.program.results
        if len(results) > (1 if keeps_product else 2) or not self._has_one_type(results):
            return None
        found = Polynomials.of(self.program)
        for n, register in enumerate(results):
            argument = gelu_argument(found, register)
            if argument is None:
                continue
            saved = 1 - n if len(results) == 2 else None
            if saved is not None and found.values[results[saved]] != argument:
                continue
            if keeps_product and not self._is_product(argument):
                continue
            if len(argument) > 1 and any(abs(factor) != 1.0 for factor in argument.values()):
                continue  # it may be a sum that is scaled, and a library would round its terms one by one
            terms = {parameter: factor for (parameter,), factor in argument.items()}
            made = self.of_sum(_Sum(terms), Activation.GELU)
            return None if made is None else replace(made, result=n, saved=saved)
        return None

    def of_gradient(self) -> GemmEpilogue | None:
        """Return the epilogue that is the product times the gradient of gelu, or None."""
        results = self.program.results
        if len(results) != 1:
            return None
        found = gelu_gradient(Polynomials.of(self.program), results[0], self.product)
        if found is None or not self._has_type_of_results(found.x):
            return None
        if not _is_packed(self.leaves[found.x]):
            return None
        return GemmEpilogue(found.alpha, activation=Activation.GELU_GRADIENT, aux=found.x)

    def _is_product(self, argument: Polynomial) -> bool:
        """Return whether ``argument`` is A @ B, and has the type of D, as the arguments that a library writes have."""
        return argument == {(self.product,): 1.0} and self._has_type_of_results(self.product)

    def _has_type_of_results(self, register: int) -> bool:
        return self.program.kind_of(register) is self.program.kind_of(self.program.results[0])

    def _has_one_type(self, results: Sequence[int]) -> bool:
        return all(map(self._has_type_of_results, results))


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


def _is_number(leaf: LoopLeaf) -> bool:
    """Return whether ``leaf`` reads the same f32 number at all indices."""
    if not isinstance(leaf, OperandElements) or leaf.shifts:
        return False
    return leaf.view.element_type is _F32 and not any(leaf.view.strides)


def _result(program: ScalarProgram, numbers: frozenset[int]) -> _Value:
    """Return the value of the only result of ``program``; None if there are several.

    numbers: the parameters that read the same number at all indices.
    """
    if len(program.results) != 1:
        return None
    result = program.kind_of(program.results[0])
    values: list[_Value] = [
        (_Scale((n,)) if n in numbers else _Sum({n: 1.0})) if holds(kind, result) else None
        for n, kind in enumerate(program.parameters)
    ]
    for step in program.steps:
        values.append(_value(step, values, result))
    return values[program.results[0]]


def _value(step: ScalarStep, values: Sequence[_Value], result: PrimitiveType) -> _Value:
    """Return the value of ``step``; None if its type does not hold the ``result``."""
    if isinstance(step, ScalarConstant):
        return number(step) if holds(step.kind, result) else None
    operands = [values[n] for n in step.operands]
    if not holds(step.signature.result, result):
        return None
    match step.signature.opcode, operands:
        case Opcode.CONVERT, [value]:
            return value
        case Opcode.MAXIMUM, [_Sum() as one, 0.0] | [0.0, _Sum() as one]:
            return replace(one, relu=True)
        case Opcode.MULTIPLY, [_Scale(factors=one), _Scale(factors=other)]:
            return _Scale((*one, *other))
        case Opcode.MULTIPLY, [_Sum() as one, _Scale(factors=factors)] | [
            _Scale(factors=factors),
            _Sum() as one,
        ]:
            return _times(one, factors)
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


def _scaled(value: _Value, factor: float) -> _Value:
    """Return ``value`` times ``factor``, or None if that would round the terms of a sum one by one."""
    if not isinstance(value, _Sum) or value.relu or not math.isfinite(factor):
        return None
    if len(value.terms) > 1 and abs(factor) != 1.0:
        return None
    return replace(value, terms={n: factor * own for n, own in value.terms.items()})


def _times(value: _Sum, factors: tuple[int, ...]) -> _Value:
    """Return ``value`` times the numbers that the parameters ``factors`` read; None if it is not a single term."""
    if value.relu or len(value.terms) != 1:
        return None
    (parameter,) = value.terms
    return replace(value, scales={parameter: (*value.scales.get(parameter, ()), *factors)})


def _sum(one: _Value, other: _Value) -> _Value:
    """Return the sum, or None if it is none of two sums without common terms."""
    if not isinstance(one, _Sum) or not isinstance(other, _Sum) or one.relu or other.relu:
        return None
    if one.terms.keys() & other.terms.keys():
        return None
    return _Sum({**one.terms, **other.terms}, scales={**one.scales, **other.scales})
