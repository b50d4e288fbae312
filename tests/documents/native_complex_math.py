"""Errors of native functions of complex numbers: the second table of docs/internals/native_math.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

P = PrimitiveType
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ComplexFunction:
    opcode: Opcode
    exact: Callable[..., Any]
    arity: int = 1


COMPLEX_FUNCTIONS = (
    ComplexFunction(Opcode.COSH, mpmath.cosh),
    ComplexFunction(Opcode.COSINE, mpmath.cos),
    ComplexFunction(Opcode.DIVIDE, lambda z, w: z / w, 2),
    ComplexFunction(Opcode.EXPONENTIAL, mpmath.exp),
    ComplexFunction(Opcode.EXPONENTIAL_MINUS_ONE, mpmath.expm1),
    ComplexFunction(Opcode.LOG, mpmath.log),
    ComplexFunction(Opcode.LOG_PLUS_ONE, mpmath.log1p),
    ComplexFunction(Opcode.LOGISTIC, lambda z: 1 / (1 + mpmath.exp(-z))),
    ComplexFunction(Opcode.POWER, mpmath.power, 2),
    ComplexFunction(Opcode.RSQRT, lambda z: 1 / mpmath.sqrt(z)),
    ComplexFunction(Opcode.SIGN, lambda z: z / abs(z)),
    ComplexFunction(Opcode.SINE, mpmath.sin),
    ComplexFunction(Opcode.SINH, mpmath.sinh),
    ComplexFunction(Opcode.SQRT, mpmath.sqrt),
    ComplexFunction(Opcode.TAN, mpmath.tan),
    ComplexFunction(Opcode.TANH, mpmath.tanh),
)


def arguments(function: ComplexFunction, kind: PrimitiveType, count: int) -> list[Array]:
    """Parts of all sizes from exp(-12) to exp(4), of either sign; a third near the unit circle."""
    rng = np.random.default_rng(7)
    columns = []
    for _ in range(function.arity):
        parts = np.exp(rng.uniform(-12, 4, (2, count))) * rng.choice([-1, 1], (2, count))
        z = parts[0] + 1j * parts[1]
        z[::3] = np.exp(1j * rng.uniform(-4, 4, z[::3].size))
        columns.append(z)
    if function.opcode is Opcode.POWER:
        columns[1] *= 3 / np.maximum(np.abs(columns[1]), 1)
    return [z.astype(kind.numpy) for z in columns]


def worst(
    function: ComplexFunction, kind: PrimitiveType, count: int
) -> tuple[float, tuple[complex, ...]]:
    """The largest distance from an exact value, in units in the last place of its absolute value; and where."""
    operands = arguments(function, kind, count)
    got = np.empty_like(operands[0])
    signature = ElementSignature(function.opcode, (kind,) * function.arity, kind)
    bind_operation(signature, operands, got)()
    info = np.finfo(kind.numpy)
    found: tuple[float, tuple[complex, ...]] = (-1.0, ())
    with mpmath.workprec(200):
        for value, *at in zip(got, *operands, strict=True):
            exact = mpmath.mpc(function.exact(*(mpmath.mpc(complex(z)) for z in at)))
            size = abs(exact)
            if not float(info.tiny) / float(info.eps) < size < float(info.max) / 2:
                continue
            unit = mpmath.ldexp(1, mpmath.mag(size) - 1 - info.nmant)
            found = max(
                found,
                (float(abs(mpmath.mpc(complex(value)) - exact) / unit), tuple(map(complex, at))),
                key=lambda x: x[0],
            )
    return found


HEADER = """
## Complex numbers

The largest distance found between a function's value and the exact one, in units in the last place of the exact value's
absolute value: a part that is much smaller than the other may have fewer right digits. {count:,} arguments each, parts from
exp(-12) to exp(4), a third of them near the unit circle. Functions of c64 are computed in f64 and rounded once a part. In a
power the rounding of w log z counts as often as that is large, in c128. On the axes, at infinities and nan values are those
of C's Annex G (`tests/runtime/codegen/elements/test_complex_functions.py`).

| function | c64: ulp | at | c128: ulp | at |
|---|---|---|---|---|
"""


def complex_page(count: int) -> Iterator[str]:
    yield HEADER.format(count=count)
    for function in COMPLEX_FUNCTIONS:
        cells = [function.opcode.value]
        for kind in (P.C64, P.C128):
            error, at = worst(function, kind, count)
            cells += [f"{error:.2f}", ", ".join(f"{z.real:.6g}{z.imag:+.6g}i" for z in at)]
        yield f"| {' | '.join(cells)} |\n"
