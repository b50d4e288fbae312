"""Kernels beside collectives: what these cost them, and what of a flight they hide.

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
from launch.report.overlap.model import DeviceStep, Flight, Slice


def with_slowdown(step: DeviceStep, alone: Alone) -> DeviceStep:
    """Slices with their ``reference``, flights with ``hidden`` and ``slowed``."""
    slices = tuple(
        replace(piece, reference=alone.of_slice(step.device, piece)) if is_compute(piece) else piece
        for piece in step.slices
    )
    kernels = [piece for piece in slices if is_compute(piece)]
    ends = [piece.end for piece in kernels]
    charged: dict[int, list[tuple[int, float]]] = defaultdict(list)
    hidden = [0.0] * len(step.flights)
    for number, flight in enumerate(step.flights):
        for place in _beside(flight, kernels, ends):
            span = kernels[place].start, kernels[place].end
            charged[place].append((number, common((flight.issued, flight.landed), span)))
            hidden[number] += common((flight.arrived, flight.landed), span)
    slowed = [0.0] * len(step.flights)
    for place, shares in charged.items():
        whole = sum(seconds for _, seconds in shares)
        for number, seconds in shares:
            slowed[number] += excess(kernels[place]) * seconds / whole
    flights = tuple(
        replace(flight, hidden=hidden[number], slowed=slowed[number])
        for number, flight in enumerate(step.flights)
    )
    return replace(step, slices=slices, flights=flights)


def excess(kernel: Slice) -> float:
    """Seconds above what it takes by itself; 0 where that is not known."""
    return 0.0 if kernel.reference is None else kernel.seconds - kernel.reference


def _beside(flight: Flight, kernels: Sequence[Slice], ends: Sequence[float]) -> Iterator[int]:
    """The places of kernels that ran for some time while it was in flight."""
    for place in range(bisect.bisect_right(ends, flight.issued), len(kernels)):
        if kernels[place].start >= flight.landed:
            return
        if kernels[place].seconds > 0.0:
            yield place
