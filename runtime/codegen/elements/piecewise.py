"""Functions of f32 by one polynomial for each of up to 32 intervals, each a quarter of an octave wide.

The interval's number is a field of the argument's bits: the last bits of the exponent and the first two of the
mantissa. The polynomial is one of the distance from a centre at which the function is nearly representable, so that the
first coefficient has almost no rounding error (S. Gal, "Computing elementary functions: a new approach for achieving
high accuracy and good performance", 1986). The centres form one table, and the coefficients of each power another.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import greatest, polynomial
from runtime.codegen.elements.formats import F32
from runtime.codegen.elements.table import SIZE, picked
from spmd.lazy_dataclass import dataclass

#: Number of mantissa bits below those that belong to the interval's number.
_SHIFT = F32.mantissa - 2


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval from ``low`` on, on which the function is P(t - centre). Coefficients begin with the lowest power."""

    low: float
    centre: float
    coefficients: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Piecewise:
    """Function of t from 0 to ``last``, whose intervals follow one another without gaps.

    The first interval begins at 0. All polynomials have the same degree.
    """

    name: str
    last: float
    intervals: tuple[Interval, ...]

    @property
    def first_key(self) -> int:
        """Return the key of the first interval, to which all smaller arguments belong as well."""
        return _key(self.intervals[1].low) - 1

    def columns(self) -> list[list[float]]:
        """Return the tables of the centres and of each coefficient, indexed by the interval's key modulo 32."""
        columns = [[0.0] * SIZE for _ in (0.0, *self.intervals[0].coefficients)]
        for number, interval in enumerate(self.intervals):
            index = (self.first_key + number) % SIZE
            for column, value in zip(
                columns, (interval.centre, *interval.coefficients), strict=True
            ):
                column[index] = value
        return columns


def _key(t: float) -> int:
    return F32.bits_of(t) >> _SHIFT


def piecewise(function: Piecewise, t: Float) -> Float:
    """Compute function(t) for t >= 0. Beyond the last interval it is the value at ``last``; nan stays nan."""
    t = (t > function.last).choose(t.constant(function.last), t)
    key = greatest(t.bits(), function.first_key << _SHIFT) >> _SHIFT
    centre, *coefficients = (
        picked(f"{function.name}_{k}", tuple(column), key)
        for k, column in enumerate(function.columns())
    )
    return polynomial(coefficients, t - centre)
