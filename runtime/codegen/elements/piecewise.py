"""Functions of f32 by a polynomial for each of up to 32 intervals, a quarter of an octave wide each.

Bits of the argument (the last ones of its exponent, the first two of its mantissa) are the interval's number. Its
polynomial is in the distance from a centre, where the function is nearly a number of the format, so that the first
coefficient adds no error (S. Gal, "Computing elementary functions: a new approach for achieving high accuracy and good
performance", 1986).

The whole of it is one function of the module. Vectors of arguments have variants, which the loop vectorizer knows by
the function's attribute, and in which coefficients are picked out of registers: 32 numbers are two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.codegen.elements.builder import F32, Float
from runtime.codegen.elements.variants import LANES, PURE, variant, with_variants

INTERVALS = 32
#: Bits of the mantissa below those that tell the interval.
_SHIFT = F32.mantissa - 2
#: Numbers in a register.
_LANES = 16


@dataclass(frozen=True, slots=True)
class Interval:
    """f(t) = P(t - centre) for t from ``low`` on; coefficients lowest power first."""

    low: float
    centre: float
    coefficients: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Piecewise:
    """A function of t from 0 to ``last``. The first interval begins at 0, the others follow each other from there on.

    Polynomials are of one degree.
    """

    name: str
    last: float
    intervals: tuple[Interval, ...]

    @property
    def first_key(self) -> int:
        """Of the first interval; all smaller arguments belong to it, too."""
        return _key(self.intervals[1].low) - 1

    def columns(self) -> list[list[float]]:
        """Centres and coefficients by the interval's key, modulo 32."""
        columns = [[0.0] * INTERVALS for _ in (0.0, *self.intervals[0].coefficients)]
        for number, interval in enumerate(self.intervals):
            place = (self.first_key + number) % INTERVALS
            for column, value in zip(
                columns, (interval.centre, *interval.coefficients), strict=True
            ):
                column[place] = value
        return columns


def _key(t: float) -> int:
    return F32.bits_of(t) >> _SHIFT


def piecewise(function: Piecewise, t: Float) -> Float:
    """function(t) for t >= 0; beyond the last interval what it is at its end. nan stays nan."""
    code = t.code
    for text in _module_text(function):
        if text not in code.globals:
            code.globals.append(text)
    t = (t > function.last).choose(t.constant(function.last), t)
    key = t.bits().greatest(function.first_key << _SHIFT) >> _SHIFT
    return Float(
        code, F32, code.append(f"call float @{_name(function)}(float {t.name}, i32 {key.name})")
    )


def _name(function: Piecewise) -> str:
    return f"piecewise_{function.name}"


def _module_text(function: Piecewise) -> list[str]:
    """The function, its variants, and what they need."""
    tables = "\n".join(
        f"@{_name(function)}.{k} = internal constant [{INTERVALS} x float] [{_floats(column)}]"
        for k, column in enumerate(function.columns())
    )
    return [
        *_DECLARATIONS,
        tables,
        _for_one(function),
        *(_for_several(function, lanes) for lanes in LANES),
    ]


def _floats(values: Sequence[float]) -> str:
    return ", ".join(f"float {F32.literal(value)}" for value in values)


_VECTOR = f"<{_LANES} x float>"
_FUSED = f"@llvm.fmuladd.v{_LANES}f32({_VECTOR}, {_VECTOR}, {_VECTOR})"
_PERMUTED = "@llvm.x86.avx512.vpermi2var.ps.512"
_DECLARATIONS = (
    "declare float @llvm.fmuladd.f32(float, float, float)",
    f"declare {_VECTOR} {_FUSED}",
    f"declare {_VECTOR} {_PERMUTED}({_VECTOR}, <{_LANES} x i32>, {_VECTOR})",
)


def _for_one(function: Piecewise) -> str:
    """Kept apart until loops are vectorized, so that they call a variant instead."""
    name = _name(function)
    count = len(function.intervals[0].coefficients) + 1
    looked_up = [
        line
        for k in range(count)
        for line in (
            f"  %p{k} = getelementptr [{INTERVALS} x float], ptr @{name}.{k}, i32 0, i32 %i",
            f"  %c{k} = load float, ptr %p{k}",
        )
    ]
    return "\n".join(
        [
            f"define internal float @{name}(float %t, i32 %key) noinline {PURE} {with_variants(name, 2)} {{",
            f"  %i = and i32 %key, {INTERVALS - 1}",
            *looked_up,
            *_polynomial("float", "f32", count),
            "}",
        ]
    )


def _for_several(function: Piecewise, lanes: int) -> str:
    """With as many arguments as a register holds, whether all are wanted or not."""
    name, t = _name(function), _VECTOR
    spread = ", ".join(f"i32 {i if i < lanes else 'poison'}" for i in range(_LANES))
    first = ", ".join(f"i32 {i}" for i in range(lanes))
    columns = function.columns()
    lines = [
        f"  %{full} = shufflevector <{lanes} x {kind}> %{given}, <{lanes} x {kind}> poison,"
        f" <{_LANES} x i32> <{spread}>"
        for full, given, kind in (("t", "some_t", "float"), ("i", "some_keys", "i32"))
    ]
    for k, column in enumerate(columns):
        low, high = (f"{t} <{_floats(half)}>" for half in (column[:_LANES], column[_LANES:]))
        lines.append(f"  %c{k} = call {t} {_PERMUTED}({low}, <{_LANES} x i32> %i, {high})")
    *body, result = _polynomial(t, f"v{_LANES}f32", len(columns))
    some = f"<{lanes} x float>"
    return "\n".join(
        [
            f"define {some} @{variant(name, lanes)}({some} %some_t, <{lanes} x i32> %some_keys) alwaysinline {PURE} {{",
            *lines,
            *body,
            f"  %some = shufflevector {t} {result.split()[-1]}, {t} poison, <{lanes} x i32> <{first}>",
            f"  ret {some} %some",
            "}",
        ]
    )


def _polynomial(t: str, suffix: str, count: int) -> list[str]:
    """Of %t by the centre %c0 and coefficients %c1, ..; the last line returns it."""
    lines, total = [f"  %r = fsub {t} %t, %c0"], f"%c{count - 1}"
    for k in reversed(range(1, count - 1)):
        lines.append(f"  %s{k} = call {t} @llvm.fmuladd.{suffix}({t} {total}, {t} %r, {t} %c{k})")
        total = f"%s{k}"
    return [*lines, f"  ret {t} {total}"]
