"""Derive the intervals of piecewise functions, and write runtime/codegen/elements/intervals.py.

    python -m benchmarks.native.minimax_intervals [--write]

Intervals are quarters of octaves, below which one reaches to 0. In each the polynomial of the distance from its centre
is Remez's best approximation relative to the function (benchmarks/native/minimax.py). The first coefficient is the
function's value at the centre, which is chosen so that rounding it loses next to nothing; around 0 the function is r +
r^2 P(r). Needs mpmath.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np
from mpmath import mp, mpf

from benchmarks.native.minimax import DIGITS, TINY, Entry, Function, avoiding_zero, fit, rounded
from runtime.codegen.elements.piecewise import Interval

TARGET = Path(__file__).parents[2] / "runtime" / "codegen" / "elements" / "intervals.py"
#: Numbers on either side of the value in an interval's middle, among which the value at its centre is looked for.
CANDIDATES = 300


@dataclass(frozen=True)
class Pieces:
    """A growing function that is nearly t at 0, and its inverse, for t up to ``high``.

    low: where the first interval ends, a power of two.
    """

    name: str
    function: Function
    inverse: Function
    low: mpf
    high: mpf
    degree: int

    def bounds(self) -> Iterator[tuple[mpf, mpf]]:
        yield mpf(0), self.low
        octave = self.low
        while True:
            for quarter in range(4):
                start = octave * (1 + mpf(quarter) / 4)
                if start >= self.high:
                    return
                yield start, octave * (1 + mpf(quarter + 1) / 4)
            octave *= 2


PIECES = (
    Pieces("TANH", mpmath.tanh, mpmath.atanh, mpf(1) / 8, mpf("9.5"), 5),
    Pieces("TANH_BF16", mpmath.tanh, mpmath.atanh, mpf(1) / 8, mpf("3.6"), 3),
)


@mp.workdps(DIGITS)
def interval_of(pieces: Pieces, low: mpf, high: mpf) -> tuple[Interval, mpf]:
    """Return an interval, and the largest error of its exact polynomial, relative to the function."""
    f = pieces.function
    if low == 0:
        tail = Entry(
            "", 24, pieces.degree - 2, (TINY, high),
            lambda r: (f(r) - r) / (r * r), lambda r: r * r / f(r), "",
        )  # fmt: skip
        coefficients, error = fit(tail)
        return Interval(0.0, 0.0, (0.0, 1.0, *coefficients)), error
    centre, at_centre = centre_of(pieces, low, high)
    entry = Entry(
        "", 24, pieces.degree - 1, (low - centre, high - centre),
        avoiding_zero(lambda r: (f(centre + r) - at_centre) / r),
        lambda r: abs(r) / f(centre + r), "",
    )  # fmt: skip
    coefficients, error = fit(entry)
    return Interval(float(low), float(centre), (float(at_centre), *coefficients)), error


def centre_of(pieces: Pieces, low: mpf, high: mpf) -> tuple[mpf, mpf]:
    """The centre whose value is closest to a number of f32, in units of its last place, and that number."""
    middle, reach = (low + high) / 2, (high - low) / 4
    start = int(np.float32(float(pieces.function(middle))).view(np.int32))
    best = (mp.inf, middle, middle)
    for bits in range(start - CANDIDATES, start + CANDIDATES + 1):
        number = np.int32(bits).view(np.float32)
        if number >= 1:
            break
        value = mpf(float(number))
        centre = rounded(pieces.inverse(value), 24)
        if abs(centre - middle) < reach:
            lost = abs(pieces.function(centre) - value) / float(np.spacing(number))
            best = min(best, (lost, centre, value))
    return best[1:]


HEADER = '''"""Intervals of piecewise functions of f32: written by benchmarks/native/minimax_intervals.py, which derives
them.

Each has its lower end, its centre and the coefficients, lowest power first; the comment says how far the exact
polynomials lie from the function, relative to it.
"""

from runtime.codegen.elements.piecewise import Interval
'''


def text_of(pieces: Pieces) -> str:
    found = [interval_of(pieces, *bounds) for bounds in pieces.bounds()]
    bits = -mpmath.log(max(error for _, error in found), 2)
    rows = "".join(
        f"    Interval(\n        {interval.low!r},\n        {interval.centre!r},\n        (\n"
        + "".join(f"            {c!r},\n" for c in interval.coefficients)
        + "        ),\n    ),\n"
        for interval, _ in found
    )
    name = pieces.name
    return f"#: {name.lower()}, 0 to {float(pieces.high)}; error 2^-{float(bits):.1f}\n{name} = (\n{rows})\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put them into the file")
    options = parser.parse_args()
    text = "\n".join([HEADER, *(text_of(pieces) for pieces in PIECES)])
    if options.write:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    print(text)
    same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
    print("as in the file" if same else "not as in the file")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
