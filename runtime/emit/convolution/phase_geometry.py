"""Phases of convolutions of inputs with holes (base dilation). The results of a phase are sums without holes.

Let b be the base dilation, s the stride and d the window dilation. Result o multiplies element k of the window by
position o * s + k * d - padding of the dilated input, which is a hole unless it is a multiple of b. For all of the
results o, o + b / gcd(b, s), .. the same elements of the window do not meet a hole: every b / gcd(b, d)-th one, or
none. So these results are a convolution without holes, which is called a phase.
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
    """Phases along one dimension.

    zeros: (first, step) of the results first, first + step, .. that are zero, since they meet only holes and padding.
    """

    phases: tuple[PhaseAxis, ...]
    zeros: tuple[tuple[int, int], ...]


def axis_phases(dim: WindowDimension, size: int, outputs: int) -> AxisPhases:
    """Return the phases along one dimension of a convolution of ``size`` input elements to ``outputs`` results."""
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
    """Return the phase of the ``outputs`` results first, first + step, .., or None if these are all zero.

    Elements at the ends of the window that meet only padding are dropped.
    """
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
    """Phases along each spatial dimension. Every combination of them is a phase of the convolution."""

    axes: tuple[AxisPhases, ...]

    def __iter__(self) -> Iterator[tuple[PhaseAxis, ...]]:
        """Yield the phases of the convolution, each as its phases along the dimensions."""
        return itertools.product(*(axis.phases for axis in self.axes))

    def __len__(self) -> int:
        """Return the number of phases of the convolution."""
        return math.prod(len(axis.phases) for axis in self.axes)

    def zeros(self) -> tuple[tuple[slice, ...], ...]:
        """Return the indices of the results that are zero, in parts that do not overlap."""
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
    """Return the phases of a convolution. x, out: sizes of its input and its result along the spatial dimensions."""
    return WindowPhases(tuple(map(axis_phases, window.dims, x, out)))
