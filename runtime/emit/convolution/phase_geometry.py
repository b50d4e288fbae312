"""Phases of convolutions of inputs with holes: the results of one phase meet elements alone, and no holes.

With base dilation b and stride s, result o meets element k of the window, with dilation d, at o * s + k * d - padding
of the input with holes, where all but multiples of b are holes. Results o, o + b / gcd(b, s), .. meet the same
elements of the window: every b / gcd(b, d)-th one, or none. Each such phase is a convolution without holes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from runtime.program.records.convolution import PhaseAxis
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window, WindowDimension


@dataclass(frozen=True, slots=True)
class AxisPhases:
    """zeros: (first, step) of results that meet nothing."""

    phases: tuple[PhaseAxis, ...]
    zeros: tuple[tuple[int, int], ...]


def has_holes(window: Window) -> bool:
    return any(dim.base_dilation > 1 for dim in window.dims)


def axis_phases(dim: WindowDimension, size: int, outputs: int) -> AxisPhases:
    """Return the phases along one dimension of an input of ``size`` elements."""
    if dim.base_dilation == 1:
        return AxisPhases((PhaseAxis(0, 1, outputs, 0, 1, dim),), ())
    step = dim.base_dilation // math.gcd(dim.base_dilation, dim.stride)
    firsts = range(min(step, outputs))
    found = [_phase(dim, size, first, step, -(-(outputs - first) // step)) for first in firsts]
    return AxisPhases(
        tuple(phase for phase in found if phase is not None),
        tuple((first, step) for first, phase in zip(firsts, found, strict=True) if phase is None),
    )


def _phase(
    dim: WindowDimension, size: int, first: int, step: int, outputs: int
) -> PhaseAxis | None:
    """Return the phase; None if it is empty. Elements at the window's ends that meet padding alone are dropped."""
    holes = dim.base_dilation
    apart = holes // math.gcd(holes, dim.window_dilation)
    start = first * dim.stride - dim.padding_low
    met = (k for k in range(min(apart, dim.size)) if not (start + k * dim.window_dilation) % holes)
    nearest = next(met, None)
    if nearest is None:
        return None
    dilation, stride = apart * dim.window_dilation // holes, step * dim.stride // holes
    low = -((start + nearest * dim.window_dilation) // holes)
    begin = max(-(-(low - (outputs - 1) * stride) // dilation), 0)
    end = min(-(-(dim.size - nearest) // apart), (size - 1 + low) // dilation + 1)
    if begin >= end:
        return None
    taps, low = end - begin, low - begin * dilation
    tap = nearest + begin * apart
    extent = (outputs - 1) * stride + (taps - 1) * dilation + 1
    window = WindowDimension(
        size=taps,
        stride=stride,
        padding_low=low,
        padding_high=extent - low - size,
        window_dilation=dilation,
        reversal=dim.reversal,
    )
    if dim.reversal:
        tap = dim.size - 1 - (tap + (taps - 1) * apart)
    return PhaseAxis(first, step, outputs, tap, apart, window)


@dataclass(frozen=True, slots=True)
class WindowPhases:
    """Phases by dimension. Every combination is a phase of the convolution."""

    axes: tuple[AxisPhases, ...]

    def __iter__(self) -> Iterator[tuple[PhaseAxis, ...]]:
        return itertools.product(*(axis.phases for axis in self.axes))

    def __len__(self) -> int:
        return math.prod(len(axis.phases) for axis in self.axes)

    def zeros(self) -> tuple[tuple[slice, ...], ...]:
        """Return the results without any term, in parts that do not overlap."""
        found: list[tuple[slice, ...]] = []
        for d, axis in enumerate(self.axes):
            before = [[phase.results for phase in other.phases] for other in self.axes[:d]]
            behind = (slice(None),) * (len(self.axes) - d - 1)
            found += [
                (*outer, slice(first, None, step), *behind)
                for first, step in axis.zeros
                for outer in itertools.product(*before)
            ]
        return tuple(found)


def window_phases(window: Window, x: Sequence[int], out: Sequence[int]) -> WindowPhases:
    """Return the phases of an input and a result of these sizes along the spatial dimensions."""
    return WindowPhases(tuple(map(axis_phases, window.dims, x, out)))
