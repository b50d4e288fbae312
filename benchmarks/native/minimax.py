"""Derive the constants of the native element functions, and write runtime/codegen/elements/constants.py.

    python -m benchmarks.native.minimax [--only REGEX] [--write]

Each polynomial is Remez's best approximation of the function of its entry under the entry's weight, which makes the
error relative to what is computed in the end. Coefficients are rounded to the type one after the other, lowest power
first; after each the rest is fitted anew, so that it makes up for the rounding (as in S. Chevillard, N. Brisebarre,
"Efficient polynomial L-infinity approximations", 2007, without the lattice). Without ``--write`` they are
derived, printed with their errors, and compared with the file. Needs mpmath.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np
from mpmath import mp, mpf

TARGET = Path(__file__).parents[2] / "runtime" / "codegen" / "elements" / "constants.py"
Function = Callable[[mpf], mpf]
#: Decimal digits of what stands below. Others set mpmath's precision, too, so whoever computes later sets it again.
DIGITS = 70
mp.dps = DIGITS


@dataclass(frozen=True)
class Entry:
    """``function`` on ``interval`` by a polynomial of ``degree``; ``weight`` times the difference is the error.

    bits: 24 or 53, of the coefficients. what: how the polynomial is used.
    """

    name: str
    bits: int
    degree: int
    interval: tuple[mpf, mpf]
    function: Function
    weight: Function
    what: str


@mp.workdps(DIGITS)
def fit(entry: Entry) -> tuple[list[float], mpf]:
    """Coefficients, lowest power first, and the largest error of the rounded polynomial."""
    fixed: list[mpf] = []
    rest = remez(entry, fixed)
    while rest:
        fixed.append(rounded(rest[0], entry.bits))
        again = remez(entry, fixed) if rest[1:] else []
        rest = min(rest[1:], again, key=lambda free: largest(entry, [*fixed, *free]))
    return [float(c) for c in fixed], largest(entry, fixed)


@mp.workdps(DIGITS)
def largest(entry: Entry, coefficients: list[mpf]) -> mpf:
    return max(abs(error(entry, coefficients, x)) for x in grid(entry.interval, 400))


def remez(entry: Entry, fixed: list[mpf]) -> list[mpf]:
    """The free coefficients, whose weighted error has equal extremes.

    They are those of the quotient by x^len(fixed), so that there is a best one on intervals around 0 too. With rounded
    coefficients that quotient has a pole at 0, and the exchange may circle: then it is the best one that was seen.
    """
    first, count = len(fixed), entry.degree + 1 - len(fixed)
    samples = [
        (x, entry.weight(x) * abs(x) ** first, (entry.function(x) - value(fixed, x)) / x**first)
        for x in grid(entry.interval, 16 * (entry.degree + 2))
    ]
    places = starting_places(len(samples), count + 1)
    best: tuple[mpf, list[mpf]] = (mp.inf, [])
    for _ in range(16):
        rows, right = mpmath.matrix(count + 1, count + 1), mpmath.matrix(count + 1, 1)
        for i, place in enumerate(places):
            x, weight, wanted = samples[place]
            for k in range(count):
                rows[i, k] = weight * x**k
            rows[i, count] = mpf(-1) ** i
            right[i] = weight * wanted
        solution = mpmath.lu_solve(rows, right)
        coefficients = [solution[k] for k in range(count)]
        errors = [w * (value(coefficients, x) - wanted) for x, w, wanted in samples]
        worst = max(map(abs, errors))
        best = min(best, (worst, coefficients), key=lambda pair: pair[0])
        places = alternating(errors, count + 1)
        if len(places) <= count or worst <= abs(solution[count]) * mpf("1.02"):
            break
    return best[1]


def starting_places(samples: int, count: int) -> list[int]:
    """Spread over the samples, none in the middle, where the weight may vanish."""
    if count == 1:
        return [samples - 1]
    places = [i * (samples - 1) / (count - 1) for i in range(count)]
    return [round(p + 0.4 * p * (samples - 1 - p) / samples / count) for p in places]


def alternating(errors: list[mpf], count: int) -> list[int]:
    """Places of the largest error of each run of one sign; what is too many is dropped at the smaller end."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def value(coefficients: list[mpf], x: mpf) -> mpf:
    total = mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def error(entry: Entry, coefficients: list[mpf], x: mpf) -> mpf:
    return entry.weight(x) * (value(coefficients, x) - entry.function(x))


def chebyshev_extrema(interval: tuple[mpf, mpf], count: int) -> list[mpf]:
    low, high = interval
    if count == 1:
        return [(low + high) / 2]
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mpmath.cos(mp.pi * i / (count - 1)) for i in range(count)]


def grid(interval: tuple[mpf, mpf], count: int) -> list[mpf]:
    """Denser at the ends, where extremes are."""
    return chebyshev_extrema(interval, count)


def rounded(x: mpf, bits: int) -> mpf:
    return mpf(float(np.float32(x))) if bits == 24 else mpf(float(x))


# ---- the entries. ``u`` is the square of the argument x where the function is even or odd.
TINY = mpf(2) ** -40


def odd_tail(f: Function) -> tuple[Function, Function]:
    """f(x) = x + x^3 P(u): P and the weight that makes its error relative to f."""

    def tail(u: mpf) -> mpf:
        x = mpmath.sqrt(u)
        return (f(x) - x) / (x * u)

    return tail, lambda u: mpmath.sqrt(u) * u / f(mpmath.sqrt(u))


def odd(name: str, bits: int, degree: int, high: mpf, f: Function, what: str) -> Entry:
    return Entry(name, bits, degree, (TINY, high * high), *odd_tail(f), what)


HALF_LN2 = mp.log(2) / 2 * mpf("1.00001")
SQRT_RANGE = (mpmath.sqrt(mpf(1) / 2) - 1, mpmath.sqrt(mpf(2)) - 1)
S_HIGH = (mpmath.sqrt(mpf(2)) - 1) / (mpmath.sqrt(mpf(2)) + 1) * mpf("1.00001")
QUARTER_PI = mp.pi / 4 * mpf("1.0001")
TAN_PI_8 = mpmath.tan(mp.pi / 8) * mpf("1.00001")


def exp_tail(r: mpf) -> mpf:
    return (mpmath.expm1(r) - r) / (r * r)


def log_tail(f: mpf) -> mpf:
    return (mpmath.log1p(f) - f + f * f / 2) / f**3


def log_ratio(s: mpf) -> mpf:
    return 2 * mpmath.atanh(s)


def avoiding_zero(f: Function) -> Function:
    """Return ``f`` with its value beside 0 in the place of 0 / 0 at 0."""
    return lambda x: f(x if abs(x) > TINY else TINY)


def entry_exp(name: str, bits: int, degree: int) -> Entry:
    return Entry(
        name,
        bits,
        degree,
        (-HALF_LN2, HALF_LN2),
        avoiding_zero(exp_tail),
        avoiding_zero(lambda r: abs(r * r / mpmath.expm1(r))),
        "exp(r) - 1 = r + r^2 P(r), |r| <= ln(2) / 2",
    )


def entry_erf_tail(name: str, bits: int, degree: int, low: mpf, high: mpf) -> Entry:
    return Entry(
        name,
        bits,
        degree,
        (TINY, high - low),
        lambda v: -mpmath.log(mpmath.erfc(v + low)),
        lambda v: mpmath.erfc(v + low),
        f"erfc(t) = exp(-P(t - {float(low)})), {float(low)} <= t <= {float(high)}",
    )


def erf_small(name: str, bits: int, degree: int, high: mpf) -> Entry:
    return Entry(
        name,
        bits,
        degree,
        (TINY, high * high),
        lambda u: mpmath.erf(mpmath.sqrt(u)) / mpmath.sqrt(u) - 1,
        lambda u: mpmath.sqrt(u) / mpmath.erf(mpmath.sqrt(u)),
        f"erf(x) = x + x P(x^2), |x| <= {float(high)}",
    )


def cosine(name: str, bits: int, degree: int) -> Entry:
    return Entry(
        name,
        bits,
        degree,
        (TINY, QUARTER_PI**2),
        lambda u: (mpmath.cos(mpmath.sqrt(u)) - 1 + u / 2) / (u * u),
        lambda u: u * u / mpmath.cos(mpmath.sqrt(u)),
        "cos(r) = 1 - u / 2 + u^2 P(u), u = r^2, |r| <= pi / 4",
    )


ENTRIES = (
    entry_exp("EXP_F32", 24, 5),
    entry_exp("EXP_F64", 53, 10),
    Entry(
        "EXP_BF16", 24, 3, (-HALF_LN2, HALF_LN2),
        avoiding_zero(lambda r: mpmath.expm1(r) / r), lambda r: abs(r) * mpmath.exp(-r),
        "exp(r) = 1 + r P(r), |r| <= ln(2) / 2",
    ),
    Entry(
        "LOG_F32", 24, 8, SQRT_RANGE, avoiding_zero(log_tail),
        avoiding_zero(lambda f: abs(f**3 / mpmath.log1p(f))),
        "log(1 + f) = f - f^2 / 2 + f^3 P(f), sqrt(1/2) <= 1 + f <= sqrt(2)",
    ),
    Entry(
        "LOG_F64", 53, 6, (TINY, S_HIGH**2),
        lambda z: (log_ratio(mpmath.sqrt(z)) - 2 * mpmath.sqrt(z)) / (mpmath.sqrt(z) * z),
        lambda z: mpmath.sqrt(z) * z / log_ratio(mpmath.sqrt(z)),
        "log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2, 1 / sqrt(2) <= (1 + s) / (1 - s) <= sqrt(2)",
    ),
    Entry(
        "LOG_AFTER_CUBE_F64", 53, 6, (TINY, S_HIGH**2),
        lambda z: (log_ratio(mpmath.sqrt(z)) / mpmath.sqrt(z) - 2 - 2 * z / 3) / (z * z),
        lambda z: z * z / 2,
        "log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + s z^2 P(z), z = s^2, in the same range",
    ),
    Entry(
        "LOG_SHORT_F64", 53, 12, SQRT_RANGE,
        avoiding_zero(lambda f: mpmath.log1p(f) / f), avoiding_zero(lambda f: abs(f / mpmath.log1p(f))),
        "log(1 + f) = f P(f), sqrt(1/2) <= 1 + f <= sqrt(2), for f32 results",
    ),
    Entry(
        "EXP2_SHORT_F64", 53, 6, (mpf("-0.5001"), mpf("0.5001")),
        lambda r: mpf(2) ** r,
        lambda r: mpf(2) ** -r,
        "2^r = P(r), |r| <= 1/2, for f32 results",
    ),
    odd("TANH_F32", 24, 4, mpf("0.625"), mpmath.tanh, "tanh(x) = x + x^3 P(x^2), |x| <= 0.625"),
    odd("TANH_F64", 53, 11, mpf("0.625"), mpmath.tanh, "tanh(x) = x + x^3 P(x^2), |x| <= 0.625"),
    odd("SINH_F32", 24, 3, mpf(1), mpmath.sinh, "sinh(x) = x + x^3 P(x^2), |x| <= 1"),
    odd("SINH_F64", 53, 6, mpf(1), mpmath.sinh, "sinh(x) = x + x^3 P(x^2), |x| <= 1"),
    erf_small("ERF_F32", 24, 6, mpf(1)),
    erf_small("ERF_F64", 53, 14, mpf(1)),
    entry_erf_tail("ERFC_F32", 24, 8, mpf(1), mpf(4)),
    entry_erf_tail("ERFC_F64", 53, 20, mpf(1), mpf(6)),
    odd("SINE_F32", 24, 2, QUARTER_PI, mpmath.sin, "sin(r) = r + r^3 P(r^2), |r| <= pi / 4"),
    odd("SINE_F64", 53, 6, QUARTER_PI, mpmath.sin, "sin(r) = r + r^3 P(r^2), |r| <= pi / 4"),
    cosine("COSINE_F32", 24, 2),
    cosine("COSINE_F64", 53, 5),
    odd("ATAN_F32", 24, 8, mpf(1), mpmath.atan, "atan(t) = t + t^3 P(t^2), |t| <= 1"),
    odd("ATAN_F64", 53, 10, TAN_PI_8, mpmath.atan, "atan(t) = t + t^3 P(t^2), |t| <= tan(pi / 8)"),
    odd("ASIN_F32", 24, 5, mpf("0.5"), mpmath.asin, "asin(x) = x + x^3 P(x^2), |x| <= 1/2"),
    odd("ASIN_F64", 53, 12, mpf("0.5"), mpmath.asin, "asin(x) = x + x^3 P(x^2), |x| <= 1/2"),
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    """``value`` as a sum of numbers of these many bits, the first bits first (cut off, the last one rounded)."""

    name: str
    value: mpf
    bits: tuple[int, ...]
    what: str

    @property
    @mp.workdps(DIGITS)
    def parts(self) -> list[float]:
        found, left = [], self.value
        for bits in self.bits[:-1]:
            unit = mpf(2) ** (mpmath.frexp(left)[1] - bits)
            found.append(mpmath.floor(left / unit) * unit)
            left -= found[-1]
        return [float(part) for part in (*found, rounded(left, self.bits[-1]))]


def two_over_pi(dropped: int) -> mpf:
    """2 / pi without its bits of weight 2^-dropped and above."""
    unit = mpf(2) ** -dropped
    return 2 / mp.pi - mpmath.floor(2 / mp.pi / unit) * unit


#: Numbers of 24 bits from 2^low on are multiples of 2^(low - 23), so bits of 2 / pi from 2^(25 - low) on give multiples
#: of 4 quarter turns.
BANDS_F32 = (0, 27, 52, 77, 102)

SPLITS = (
    Split("LN2_F32", mp.log(2), (15, 24), "ln(2); an exponent times the first part is exact"),
    Split("LN2_32ND_F32", mp.log(2) / 32, (24, 24), "ln(2) / 32"),
    Split("LN2_F64", mp.log(2), (40, 53), "ln(2); an exponent times the first part is exact"),
    Split("TWO_THIRDS", mpf(2) / 3, (53, 53), "2 / 3"),
    Split("HALF_PI", mp.pi / 2, (53, 53), "pi / 2"),
    *(
        Split(
            f"QUARTER_TURNS_FROM_{low}",
            two_over_pi(max(0, low - 25)),
            (29, 29, 53),
            f"2 / pi without what gives whole turns for numbers of 24 bits from 2^{low} on",
        )
        for low in BANDS_F32
    ),
)


def turns_f64() -> list[float]:
    """Row b: 2^(32 b) 2 / pi in four parts, for numbers of 53 bits from 2^(32 b) on, without whole turns as above."""
    with mp.workdps(420):
        rows = [
            Split("", two_over_pi(max(0, 32 * band - 54)) * mpf(2) ** (32 * band), (53,) * 4, "")
            for band in range(32)
        ]
        return [part for row in rows for part in row.parts]


HEADER = '''"""Constants of the element functions: written by benchmarks/native/minimax.py, which derives them.

Polynomials are given by their coefficients, lowest power first. The comment says what the polynomial computes and how
far the exact sum with these coefficients lies from it, relative to the function (of erfc absolutely).
"""
'''


def entry_text(entry: Entry) -> str:
    coefficients, worst = fit(entry)
    bits = -mpmath.log(worst, 2)
    return block(entry.name, f"{entry.what}; error 2^-{float(bits):.1f}", coefficients)


def block(name: str, what: str, numbers: list[float]) -> str:
    body = "\n".join(f"    {number!r}," for number in numbers)
    return f"#: {what}\n{name} = (\n{body}\n)\n"


def blocks(only: str) -> Iterator[tuple[str, str]]:
    for split in SPLITS:
        if re.search(only, split.name):
            yield split.name, block(split.name, split.what, split.parts)
    if re.search(only, "QUARTER_TURNS_F64"):
        what = "row b: 2^(32 b) 2 / pi, without whole turns for numbers of 53 bits from 2^(32 b) on"
        yield "QUARTER_TURNS_F64", block("QUARTER_TURNS_F64", what, turns_f64())
    for entry in ENTRIES:
        if re.search(only, entry.name):
            yield entry.name, entry_text(entry)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="constants whose name matches this expression")
    parser.add_argument("--write", action="store_true", help="put them into the file")
    options = parser.parse_args()
    committed = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
    found = {m[2]: m[1] for m in re.finditer(r"(?ms)^(#:[^\n]*\n(\w+) = \(.*?^\)\n)", committed)}
    different, known = [], found if options.only else {}
    for name, text in blocks(options.only):
        print(text, flush=True)
        if found.get(name) != text:
            different.append(name)
        known[name] = text
    if options.write:
        TARGET.write_text(HEADER + "\n" + "".join(known.values()), encoding="utf-8")
        return 0
    print("not as in the file:" if different else "as in the file", *different, sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
