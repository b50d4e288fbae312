"""Does rounding explain why an output differs? The reference is evaluated again and again with noise in every rounding.

A difference is explained if noise of a unit or two in the last place moves the reference's own output about as far, in
the same element. Elements are judged one by one, so that an element which no noise moves must be right, however noisy
the others are. Samples are added as long as they explain more: differences that rounding causes are soon explained,
those that an error causes never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from launch.checks.expect import Expected, OutputCheck, Verdict, compare_elements, distance, widened
from launch.data.inputs import Array
from spmd.evaluator.rounding_noise import RoundingNoise
from spmd.lazy_dataclass import dataclass

#: Numbers of evaluations with noise: the largest, the least before giving up, and the number of consecutive ones
#: without an explanation before giving up.
MOST_SAMPLES = 40
LEAST_SAMPLES = 6
FRUITLESS_SAMPLES = 4
#: Fraction of the elements up to which doubtful elements count as few, and all samples are taken for them. Of a million
#: elements, some move little in several samples by chance; one sample in ten switches the gradient of a rectifier.
FEW = 0.01

#: Size of the noise in units in the last place, sample by sample; later samples use the last one.
ULPS = (1, 1, 1, 1, 1, 1, 2)

#: An element may differ by this many times as much as noise has moved it.
FACTOR = 4.0

#: Number of values under noise from which an integer counts as a rounded number; with fewer it is a choice (argmax).
A_RANGE = 3

Sample: TypeAlias = Callable[[RoundingNoise | None], Sequence[Array]]
"""Outputs of the reference, evaluated with noise or without."""


@dataclass
class Doubt:
    """Elements of output ``number`` that differ by more than the tolerance, and their values under noise.

    have, want, limit: actual values, expected values and tolerance.
    base: values of the reference without noise.
    furthest: by how much noise has moved each element.
    seen: values under noise, one array for each sample.
    """

    number: int
    positions: Array
    have: Array
    want: Array
    limit: Array
    base: Array
    furthest: Array
    seen: list[Array]

    @staticmethod
    def of(number: int, got: Array, expected: Expected, base: Array) -> Doubt:
        """Take the elements of `got` that are beyond the tolerance; `base`: the reference's output."""
        elements = compare_elements(got, expected)
        flat = np.flatnonzero(elements.difference.reshape(-1) > elements.limit.reshape(-1))
        have, want, limit = (
            x.reshape(-1)[flat] for x in (elements.have, elements.want, elements.limit)
        )
        where = flat if expected.positions is None else expected.positions.reshape(-1)[flat]
        values = widened(base.reshape(-1)[where], expected.shape.element_type)
        return Doubt(number, where, have, want, limit, values, np.zeros(flat.size), [])

    def add(self, sample: Array) -> None:
        """Take one more evaluation with noise."""
        values = sample.reshape(-1)[self.positions].astype(self.base.dtype)
        moved = distance(values, self.base)
        self.furthest = np.maximum(self.furthest, np.where(np.isfinite(moved), moved, 0.0))
        self.seen.append(values)

    def unexplained(self) -> int:
        """Return the number of elements that noise does not explain."""
        reached = self._reached(self.have) & self._reached(self.want)
        return int(np.count_nonzero(~(reached | self._within())))

    def _reached(self, values: Array) -> Array:
        """Return whether each of `values` is one that the reference gave, with noise or without."""
        found = np.zeros(values.shape, np.bool_)
        for one in (self.base, *self.seen):
            found |= distance(values, one) <= self.limit
        return found

    def _within(self) -> Array:
        """Return whether each difference is at most `FACTOR` times what noise does; integers lie between its values."""
        if self.base.dtype.kind not in "iu":
            is_close = distance(self.have, self.want) <= self.limit + FACTOR * self.furthest
            return np.asarray(is_close)
        values = np.sort(np.stack([self.base, *self.seen]), axis=0)
        inside = np.count_nonzero(np.diff(values, axis=0), axis=0) + 1 >= A_RANGE
        for one in (self.have, self.want):
            inside &= (values[0] <= one) & (one <= values[-1])
        return np.asarray(inside)


@dataclass(frozen=True)
class Judgement:
    """Checks with their verdicts. ``note``: a line for the user if sampling ended early."""

    checks: list[OutputCheck]
    note: str = ""


def judge_rounding(
    outputs: Sequence[Array],
    expected: Sequence[Expected],
    checks: Sequence[OutputCheck],
    sample: Sample,
    *,
    excess: bool,
    seconds: float,
    show: Callable[[str], None],
) -> Judgement:
    """Change the verdict of outputs whose differences rounding explains.

    `excess`: the expected values may come from a program that keeps 16-bit results in f32. No sample begins after
    `seconds`. `show` gets a line on how far this is.
    """
    start = time.monotonic()
    base = sample(None)
    doubts = [
        Doubt.of(k, outputs[k], expected[k], base[k]) for k, one in enumerate(checks) if not one.ok
    ]
    left, fruitless, note = _unexplained(doubts), 0, ""
    few = FEW * sum(doubt.have.size for doubt in doubts)
    for number in range(MOST_SAMPLES):
        if number >= LEAST_SAMPLES and fruitless >= FRUITLESS_SAMPLES and left > few:
            break
        if number and time.monotonic() - start > seconds:
            note = f"rounding was judged by only {number} evaluations, because {seconds:g} s (--timeout) were over"
            break
        show(f"checking for amplified rounding: evaluation {number + 1} of at most {MOST_SAMPLES}")
        values = sample(RoundingNoise(number, ULPS[min(number, len(ULPS) - 1)], excess))
        for doubt in doubts:
            doubt.add(values[doubt.number])
        before, left = left, _unexplained(doubts)
        fruitless = 0 if left < before else fruitless + 1
        if not left:
            break
    judged = list(checks)
    for doubt in doubts:
        if not doubt.unexplained():
            judged[doubt.number] = replace(checks[doubt.number], verdict=Verdict.ROUNDING)
    return Judgement(judged, note)


def _unexplained(doubts: Sequence[Doubt]) -> int:
    return sum(doubt.unexplained() for doubt in doubts)
