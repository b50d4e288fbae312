"""Every elementwise opcode on every element type it takes, at every edge value (pairs of them for binary ones)."""

from __future__ import annotations

import cmath
import itertools
import math

import pytest

from tests.spmd.op_matrix import (
    allowed,
    complex_functions,
    real_functions,
    whole_functions,
)
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS, wrap
from tests.spmd.op_matrix.judge import close, complex_close, has_nan
from tests.spmd.op_matrix.run import elementwise
from tests.spmd.op_matrix.values import values

#: Units in the last place. f64 and f32 functions come from NumPy's libm; narrow types compute in f32 and round once.
_ULPS = {"f64": 4.0, "f32": 4.0}
_NARROW_ULPS = 1.0
#: exp(y log x) multiplies the error of the logarithm by |y log x|; atan2 takes the logarithm of a quotient near 1;
#: 1 + exp(-x) cancels near the poles of the logistic function.
_COMPLEX_ULPS = {"power": 1024.0, "atan2": 256.0, "logistic": 64.0}


def report(opcode, kind, wrong):
    """The first mismatches, as they would be reproduced."""
    shown = "\n".join(
        f"  {opcode}({', '.join(map(repr, x))}) = {g!r}, should be {w!r}" for x, g, w in wrong[:8]
    )
    assert not wrong, f"{opcode} on {kind}: {len(wrong)} wrong\n{shown}"


UNARY = [(opcode, kind) for opcode, kinds in allowed.UNARY.items() for kind in kinds]
BINARY = [(opcode, kind) for opcode, kinds in allowed.BINARY.items() for kind in kinds]


@pytest.mark.parametrize(("opcode", "kind"), UNARY)
def test_unary(opcode, kind):
    xs = values(kind)
    got = elementwise(opcode, [(kind, xs)], allowed.result_type(opcode, kind))
    wrong = [
        ((x,), g, w) for x, g in zip(xs, got, strict=True) if (w := misses(opcode, kind, (x,), g))
    ]
    report(opcode, kind, wrong)


@pytest.mark.parametrize(("opcode", "kind"), BINARY)
def test_binary(opcode, kind):
    all_parts = kind not in COMPLEX or opcode in complex_functions.BY_PARTS
    tried = [z for z in values(kind) if all_parts or cmath.isfinite(z)]
    pairs = list(itertools.product(tried[::3] if kind in COMPLEX else tried, tried))
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    got = elementwise(opcode, [(kind, xs), (kind, ys)], allowed.result_type(opcode, kind))
    wrong = [
        (p, g, w) for p, g in zip(pairs, got, strict=True) if (w := misses(opcode, kind, p, g))
    ]
    report(opcode, kind, wrong)


def misses(opcode, kind, xs, got):
    """Return None where ``got`` is right, else a tuple that holds the right value."""
    if kind == "pred":
        want = whole_functions.PRED_BINARY[opcode](*xs) if len(xs) == 2 else not xs[0]
        return None if got == want else (want,)
    if kind in INTEGERS:
        table = whole_functions.UNARY if len(xs) == 1 else whole_functions.BINARY
        want = wrap(table[opcode](*xs, kind), kind)
        return None if got == want else (want,)
    return (
        complex_misses(opcode, kind, xs, got)
        if kind in COMPLEX
        else real_misses(opcode, kind, xs, got)
    )


def real_misses(opcode, kind, xs, got):
    if opcode == "is-finite":
        return None if got == math.isfinite(xs[0]) else (not got,)
    if opcode == "complex":
        want = complex(*xs)
        return None if repr(got) == repr(want) else (want,)
    exact = real_functions.EXACT if len(xs) == 1 else real_functions.BINARY
    rounded_once = opcode in exact and opcode not in ("power", "atan2")
    want = (exact if opcode in exact else real_functions.TRANSCENDENTAL)[opcode](*xs)
    if want != want and not has_nan(FLOATS[kind]):
        return None  # a type without NaN holds something else
    if kind == "f8e8m0fnu":
        want = FLOATS["f32"].round(want)  # it computes in f32, whose zero it does not have
    if opcode in ("maximum", "minimum") and got == want == 0:
        return None  # which zero is left open
    ulps = 0 if rounded_once or opcode == "sqrt" else _ULPS.get(kind, _NARROW_ULPS)
    return None if close(kind, got, want, ulps) else (FLOATS["f64"].round(want),)


def complex_misses(opcode, kind, xs, got):
    if opcode in ("real", "imag", "abs"):
        part = COMPLEX[kind]
        parts = {"real": lambda z: z.real, "imag": lambda z: z.imag, "abs": complex_functions.size}
        want = parts[opcode](xs[0])
        return None if close(part, got, want, 4 if opcode == "abs" else 0) else (want,)
    if len(xs) == 2:
        want = complex_functions.binary(opcode, *xs)
    else:
        want = complex_functions.unary(opcode, repr(xs[0].real), repr(xs[0].imag))
    at_least = 1.0 if opcode == "atan2" else 0.0
    if want is None or complex_close(kind, got, want, _COMPLEX_ULPS.get(opcode, 16.0), at_least):
        return None
    return (complex(want),)
