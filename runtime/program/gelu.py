"""Recognition of gelu's tanh approximation, and of its gradient, in scalar programs.

    gelu(x) = 0.5 x (1 + t)                                          t = tanh(c (x + a x^3))
    dgelu(x) = 0.5 (1 + t) + 0.5 c x (1 - t^2) (1 + 3 a x^2)          c = sqrt(2 / pi), a = 0.044715

A program is compared with these as a polynomial, so the order of its operations does not matter. Its constants may
differ from c and a by what rounding to the type of the result may have changed.
"""

from __future__ import annotations

import math

from runtime.program.polynomials import (
    Monomial,
    Polynomial,
    Polynomials,
    product,
    scaled,
    total,
)
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Opcodes of which every program of gelu has one.
GELU_OPCODES = frozenset({Opcode.TANH, Opcode.LOGISTIC})
_C, _A = math.sqrt(2.0 / math.pi), 0.044715
#: Largest relative difference of coefficients, by the type of the result. A coefficient is the product of up to four
#: constants that were rounded to this type.
_TOLERANCES = {PrimitiveType.BF16: 2.0**-7, PrimitiveType.F16: 2.0**-9, PrimitiveType.F32: 2.0**-20}
#: Largest coefficient of a term that should cancel, relative to the largest coefficient.
_CANCELLED = 2.0**-20


@dataclass(frozen=True, slots=True)
class GeluGradient:
    """The value ``alpha`` * product * dgelu(x). ``x`` is the number of the parameter x."""

    alpha: float
    x: int


def gelu_argument(found: Polynomials, register: int) -> Polynomial | None:
    """Return the sum of parameters times coefficients of which ``register`` is gelu, or None."""
    value, tangent = found.values[register], _tangent(found, register)
    tolerance = _TOLERANCES.get(found.result)
    if value is None or tangent is None or tolerance is None:
        return None
    # The scale of the argument is exact in the term without the tangent.
    x = scaled({m: factor for m, factor in value.items() if tangent not in m}, 2.0)
    if not x or any(len(monomial) != 1 for monomial in x):
        return None
    want = _product(scaled(x, 0.5), total({(): 1.0}, {(tangent,): 1.0}))
    return x if _close(value, want, tolerance) and _is_inner(found, tangent, x, tolerance) else None


def gelu_gradient(found: Polynomials, register: int, product: int) -> GeluGradient | None:
    """Return how ``register`` is a multiple of parameter ``product`` times the gradient of gelu, or None."""
    value, tangent = found.values[register], _tangent(found, register)
    tolerance = _TOLERANCES.get(found.result)
    if value is None or tangent is None or tolerance is None:
        return None
    others = {factor for monomial in value for factor in monomial} - {product, tangent}
    alpha = 2.0 * value.get((product,), 0.0)
    if len(others) != 1 or not alpha:
        return None
    (x,) = others
    want = _product({(product,): alpha}, _gradient(x, tangent))
    if not _close(value, want, tolerance) or not _is_inner(found, tangent, {(x,): 1.0}, tolerance):
        return None
    return GeluGradient(alpha, x)


def _tangent(found: Polynomials, register: int) -> int | None:
    """Return the only tangent in the value of ``register``, or None."""
    tangents = {factor for monomial in found.values[register] or () for factor in monomial}
    tangents = {factor for factor in tangents if factor < 0}
    return tangents.pop() if len(tangents) == 1 else None


def _gradient(x: int, tangent: int) -> Polynomial:
    outer = {(): 0.5, (tangent,): 0.5}
    within = {(x,): 0.5 * _C, (x, x, x): 1.5 * _C * _A}
    return total(outer, _product(within, {(): 1.0, (tangent, tangent): -1.0}))


def _is_inner(found: Polynomials, tangent: int, x: Polynomial, tolerance: float) -> bool:
    """Return whether ``tangent`` is that of c (x + a x^3)."""
    cube = product(x, x, x)
    if cube is None:
        return False
    want = total(scaled(x, _C), scaled(cube, _C * _A))
    return _close(found.arguments[-1 - tangent], want, tolerance)


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    made = product(one, other)
    assert made is not None, "it has few terms"
    return made


def _close(one: Polynomial, want: Polynomial, tolerance: float) -> bool:
    """Return whether the coefficients of ``one`` are those of ``want``, within the relative ``tolerance``."""
    little = _CANCELLED * max(map(abs, want.values()))

    def is_close(monomial: Monomial) -> bool:
        wanted = want.get(monomial, 0.0)
        allowed = tolerance * abs(wanted) if wanted else little
        return abs(one.get(monomial, 0.0) - wanted) <= allowed

    return all(map(is_close, dict.fromkeys((*one, *want))))
