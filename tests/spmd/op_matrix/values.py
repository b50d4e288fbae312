"""The values each element type is tried with: zeros, extremes, denormals, infinities, NaN, and some ordinary ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INF, INTEGERS, NAN, all_values, bounds

#: A Python scalar of an element type: bool, int, float or complex.
Scalar = Any

_ORDINARY = (1.0, 0.5, 1.5, 2.0, 2.5, 3.0, 0.1, 0.7, 10.0, 47.0, 0.999999999, 1.0000001, 88.5, 1e-3)


@cache
def floats(kind: str) -> tuple[float, ...]:
    """Distinct values of the type (both zeros count), in a fixed order; all there are where the type has 4 bits."""
    form = FLOATS[kind]
    if form.bits <= 4:
        return _distinct(list(all_values(kind)))
    tiny = math.ldexp(1.0, form.least_exponent - form.mantissa)
    normal = math.ldexp(1.0, form.least_exponent)
    edges = [0.0, INF, float(form.largest), tiny, normal, normal - tiny, 3 * tiny]
    near_one = [1.0 + math.ldexp(1.0, -form.mantissa), 1.0 - math.ldexp(1.0, -form.mantissa - 1)]
    positive = [*edges, *near_one, *(form.round(x) for x in _ORDINARY)]
    special = [] if form.flavour == "finite" else [NAN]
    return _distinct([form.round(s) for x in positive for s in (x, -x)] + special)


def _distinct(values: Sequence[float]) -> tuple[float, ...]:
    return tuple({repr(x): x for x in values}.values())


@cache
def integers(kind: str) -> tuple[int, ...]:
    low, high = bounds(kind)
    if INTEGERS[kind] <= 4:
        return tuple(range(low, high + 1))
    wanted = (
        low,
        low + 1,
        -100,
        -7,
        -2,
        -1,
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        64,
        100,
        high // 2 + 1,
        high - 1,
        high,
    )
    return tuple(dict.fromkeys(x for x in wanted if low <= x <= high))


@cache
def complexes(kind: str) -> tuple[complex, ...]:
    """Finite parts first: all pairs of a few, then some of denormal and of the largest parts; then infinities and NaN."""
    form = FLOATS[COMPLEX[kind]]
    big, tiny = float(form.largest), math.ldexp(1.0, form.least_exponent - form.mantissa)
    far = [
        (big, 0.0),
        (-big, tiny),
        (big, -big),
        (0.0, big),
        (tiny, 0.0),
        (-3 * tiny, tiny),
        (-0.0, tiny),
        (1.0, -tiny),
    ]
    parts = [form.round(x) for x in (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3)]
    special = [0.0, 1.0, -2.0, INF, -INF, NAN]
    pairs = [complex(a, b) for a in parts for b in parts]
    pairs += [complex(a, b) for a, b in far]
    pairs += [complex(a, b) for a in special for b in special if not math.isfinite(a + b)]
    return pairs_distinct(pairs)


def pairs_distinct(values: Sequence[complex]) -> tuple[complex, ...]:
    return tuple({(repr(z.real), repr(z.imag)): z for z in values}.values())


ALL_TYPES = ("pred", *INTEGERS, *FLOATS, *COMPLEX)


def values(kind: str) -> tuple[Scalar, ...]:
    if kind == "pred":
        return (False, True)
    if kind in INTEGERS:
        return integers(kind)
    return complexes(kind) if kind in COMPLEX else floats(kind)


@cache
def edges(kind: str) -> tuple[Scalar, ...]:
    """One value of each class that the type has, and an ordinary one: few enough to put them anywhere."""
    if kind == "pred":
        return (True, False)
    if kind in INTEGERS:
        low, high = bounds(kind)
        return tuple(dict.fromkeys((low, high, 0, min(2, high - 1) or max(low, -1))))
    if kind in COMPLEX:
        real = edges(COMPLEX[kind])
        return tuple(complex(a, b) for a, b in zip(real, (*real[3:], *real[:3]), strict=True))
    form = FLOATS[kind]
    big, tiny = float(form.largest), math.ldexp(1.0, form.least_exponent - form.mantissa)
    few = _distinct([form.round(x) for x in (-0.0, INF, NAN, tiny, big, 0.0, -INF, 2.0, -big)])
    return tuple(x for x in few if x == x or form.flavour != "finite")


def rounds(kind: str, sizes: Sequence[int]) -> Iterator[list[list[Scalar]]]:
    """Contents for operands of these sizes, again and again, until the largest has held every edge value."""
    stock = edges(kind)
    for start in range(0, len(stock), max(1, *sizes)):
        yield [
            list(itertools.islice(itertools.cycle(stock), start + i, start + i + size))
            for i, size in enumerate(sizes)
        ]
