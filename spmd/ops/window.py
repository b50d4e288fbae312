"""Sliding windows of convolution, reduce-window and select-and-scatter."""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window; field names follow XLA's WindowDimension."""

    size: int = 1
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    @property
    def dilated_size(self) -> int:
        return (self.size - 1) * self.window_dilation + 1 if self.size else 0

    def output_size(self, base: int) -> int:
        """Return the number of window positions over ``base`` elements after dilation and padding. Raises ShapeError
        for strides below 1.
        """
        if min(self.stride, self.base_dilation, self.window_dilation) < 1 or self.size < 0:
            raise ShapeError(f"a window needs strides and dilations of at least 1, found {self}")
        dilated = (base - 1) * self.base_dilation + 1 if base else 0
        padded = self.padding_low + dilated + self.padding_high
        if self.dilated_size > padded or padded == 0:
            return 0
        return (padded - self.dilated_size) // self.stride + 1


@dataclass(frozen=True, slots=True)
class Window:
    dims: tuple[WindowDimension, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def has_holes(self) -> bool:
        """True if the window has base dilation, so that there are holes between the elements of its input."""
        return any(dim.base_dilation > 1 for dim in self.dims)
