"""Scalar programs as polynomials in their parameters and in hyperbolic tangents of polynomials.

    0.5 * x * (1 + tanh(0.8 * x))     0.5 x + 0.5 x t, where t = tanh(0.8 x)
    x * logistic(1.6 * x)             the same

Products of sums are expanded, so programs that compute a function in different orders have polynomials whose
coefficients are equal up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

import numpy as np

from runtime.program.scalar_program import ScalarConstant, ScalarProgram, ScalarStep
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Factors of a term, in ascending order: n is parameter n, and -1 - k is the tangent of ``arguments[k]``.
Monomial: TypeAlias = tuple[int, ...]
#: Coefficients, none of them zero.
Polynomial: TypeAlias = Mapping[Monomial, float]

#: Largest numbers of terms and of factors of a term. The gradient of gelu has 6 terms of up to 6 factors.
_MOST_TERMS, _MOST_FACTORS = 64, 12
_WIDER = {PrimitiveType.BF16: PrimitiveType.F32, PrimitiveType.F16: PrimitiveType.F32}


def holds(kind: PrimitiveType, result: PrimitiveType) -> bool:
    """Return whether a value of type ``kind`` need not be rounded to it before it is rounded to ``result``."""
    return kind in (result, _WIDER.get(result))


def number(constant: ScalarConstant) -> float:
    """Return the number that ``constant`` is."""
    memory = constant.bits.to_bytes(constant.kind.byte_size, "little")
    return float(np.frombuffer(memory, constant.kind.numpy)[0])


@dataclass(slots=True)
class Polynomials:
    """Polynomials of registers. ``arguments`` are those of the tangents.

    The value of a register is None if it is no such polynomial, or if it is rounded to a type that does not hold the
    ``result`` type.
    """

    result: PrimitiveType
    values: list[Polynomial | None] = field(default_factory=list)
    arguments: list[Polynomial] = field(default_factory=list)

    @staticmethod
    def of(program: ScalarProgram) -> Polynomials:
        """Return the polynomials of all registers of ``program``, whose results must have one type."""
        found = Polynomials(program.kind_of(program.results[0]))
        for n, kind in enumerate(program.parameters):
            found.values.append({(n,): 1.0} if holds(kind, found.result) else None)
        for step in program.steps:
            found.values.append(found._value(step))
        return found

    def _value(self, step: ScalarStep) -> Polynomial | None:
        """Return the polynomial of ``step``, whose operands are known."""
        if isinstance(step, ScalarConstant):
            return _constant(number(step)) if holds(step.kind, self.result) else None
        operands = [value for n in step.operands if (value := self.values[n]) is not None]
        if len(operands) < len(step.operands) or not holds(step.signature.result, self.result):
            return None
        return self._computed(step.signature.opcode, operands)

    def _computed(self, opcode: Opcode, operands: Sequence[Polynomial]) -> Polynomial | None:
        """Return the polynomial of an operation on ``operands``."""
        match opcode, operands:
            case Opcode.CONVERT, [one]:
                return one
            case Opcode.NEGATE, [one]:
                return scaled(one, -1.0)
            case Opcode.ADD, [one, other]:
                return total(one, other)
            case Opcode.SUBTRACT, [one, other]:
                return total(one, scaled(other, -1.0))
            case Opcode.MULTIPLY, [one, other]:
                return product(one, other)
            case Opcode.DIVIDE, [one, other]:
                divisor = _number(other)
                return scaled(one, 1.0 / divisor) if divisor else None
            case Opcode.POWER, [one, other]:
                exponent = _number(other)
                return product(*[one] * int(exponent)) if exponent in (2.0, 3.0) else None
            case Opcode.TANH, [one]:
                return self._tangent(one)
            case Opcode.LOGISTIC, [one]:
                return total({(): 0.5}, scaled(self._tangent(scaled(one, 0.5)), 0.5))
        return None

    def _tangent(self, argument: Polynomial) -> Polynomial:
        if argument not in self.arguments:
            self.arguments.append(argument)
        return {(-1 - self.arguments.index(argument),): 1.0}


def total(one: Polynomial, other: Polynomial) -> Polynomial:
    """Return the sum of two polynomials."""
    found = {
        monomial: one.get(monomial, 0.0) + other.get(monomial, 0.0)
        for monomial in dict.fromkeys((*one, *other))
    }
    return {monomial: factor for monomial, factor in found.items() if factor}


def scaled(one: Polynomial, factor: float) -> Polynomial:
    """Return ``one`` times ``factor``, which is not zero."""
    return {monomial: factor * own for monomial, own in one.items()}


def product(*factors: Polynomial) -> Polynomial | None:
    """Return the product of polynomials, or None if it has more terms or factors than any that is looked for."""
    found: Polynomial = {(): 1.0}
    for factor in factors:
        terms: dict[Monomial, float] = {}
        for one, by in found.items():
            for other, own in factor.items():
                monomial = tuple(sorted((*one, *other)))
                terms[monomial] = terms.get(monomial, 0.0) + by * own
        found = {monomial: own for monomial, own in terms.items() if own}
        if len(found) > _MOST_TERMS or max(map(len, found), default=0) > _MOST_FACTORS:
            return None
    return found


def _constant(value: float) -> Polynomial | None:
    if not math.isfinite(value):
        return None
    return {(): value} if value else {}


def _number(one: Polynomial) -> float | None:
    """Return the number that ``one`` is, or None if it has a parameter or a tangent."""
    return one.get((), 0.0) if one.keys() <= {()} else None
