"""Functions of f32 by one polynomial for each of up to 32 intervals, a quarter of an octave wide each.

Bits of the argument (the last ones of its exponent, the first two of its mantissa) are the interval's number. Its
polynomial is in the distance from a centre at which the function is nearly representable, so that the first coefficient
adds no error (S. Gal, "Computing elementary functions: a new approach for achieving high accuracy and good
performance", 1986).

The centres, and the coefficients of each power, form one table each.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import greatest, polynomial
from runtime.codegen.elements.formats import F32
from runtime.codegen.elements.table import SIZE, picked
from spmd.lazy_dataclass import dataclass

#: Number of mantissa bits below those that give the interval.
_SHIFT = F32.mantissa - 2


@dataclass(frozen=True, slots=True)
class Interval:
    """f(t) = P(t - centre) for t from ``low`` on; coefficients lowest power first."""

    low: float
    centre: float
    coefficients: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Piecewise:
    """Function of t from 0 to ``last``. The first interval begins at 0, the others follow without gaps.

    All polynomials have the same degree.
    """

    name: str
    last: float
    intervals: tuple[Interval, ...]

    @property
    def first_key(self) -> int:
        """The key of the first interval; all smaller arguments belong to it, too."""
        return _key(self.intervals[1].low) - 1

    def columns(self) -> list[list[float]]:
        """Return the columns of centres and coefficients, by the interval's key modulo 32."""
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
    """Compute function(t) for t >= 0; beyond the last interval the value at its end. nan stays nan."""
    t = (t > function.last).choose(t.constant(function.last), t)
    key = greatest(t.bits(), function.first_key << _SHIFT) >> _SHIFT
    centre, *coefficients = (
        picked(f"{function.name}_{k}", tuple(column), key)
        for k, column in enumerate(function.columns())
    )
    return polynomial(coefficients, t - centre)
