"""Kernels that overlap collectives: the slowdown of the kernels, and the part of the collectives that they hide.

A kernel that took longer than by itself (or less long: the sum has to be right) is charged to the collectives that
were in flight meanwhile, in proportion to the time that each was.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from collectives.cost.intervals import common
from launch.report.overlap.alone import Alone, is_compute
from launch.report.overlap.model import AsyncInterval, DeviceStep, Slice


def with_slowdown(step: DeviceStep, alone: Alone) -> DeviceStep:
    """Return the step with ``reference`` set in its slices, ``hidden`` and ``slowed`` in its collectives."""
    slices = tuple(
        replace(piece, reference=alone.of_slice(step.device, piece)) if is_compute(piece) else piece
        for piece in step.slices
    )
    kernels = [piece for piece in slices if is_compute(piece)]
    ends = [piece.end for piece in kernels]
    charged: dict[int, list[tuple[int, float]]] = defaultdict(list)
    hidden = [0.0] * len(step.async_intervals)
    for number, async_interval in enumerate(step.async_intervals):
        for index in _concurrent_kernels(async_interval, kernels, ends):
            span = kernels[index].start, kernels[index].end
            charged[index].append(
                (number, common((async_interval.issued, async_interval.landed), span))
            )
            hidden[number] += common((async_interval.arrived, async_interval.landed), span)
    slowed = [0.0] * len(step.async_intervals)
    for index, shares in charged.items():
        total = sum(seconds for _, seconds in shares)
        for number, seconds in shares:
            slowed[number] += excess(kernels[index]) * seconds / total
    async_intervals = tuple(
        replace(async_interval, hidden=hidden[number], slowed=slowed[number])
        for number, async_interval in enumerate(step.async_intervals)
    )
    return replace(step, slices=slices, async_intervals=async_intervals)


def excess(kernel: Slice) -> float:
    """Return the seconds above the kernel's time by itself; 0 if that is unknown."""
    return 0.0 if kernel.reference is None else kernel.seconds - kernel.reference


def _concurrent_kernels(
    async_interval: AsyncInterval, kernels: Sequence[Slice], ends: Sequence[float]
) -> Iterator[int]:
    """Yield the indices of kernels that ran while the collective was in flight."""
    for index in range(bisect.bisect_right(ends, async_interval.issued), len(kernels)):
        if kernels[index].start >= async_interval.landed:
            return
        if kernels[index].seconds > 0.0:
            yield index
