"""Where operations leave elements, and which leave them where they are: what the buffer checker counts as movement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape


def is_read(x: HloInstruction, user: HloInstruction) -> bool:
    """Whether any element of ``user`` needs one of ``x``. Padding may cut off all that it surrounds."""
    if user.opcode is not Opcode.PAD or user.operand(0) is not x or user.operand(1) is x:
        return True
    attrs = user.attrs_as(PadAttrs)
    ways = zip(x.dims, attrs.low, attrs.interior, user.dims, strict=True)
    return all(_comes_in(*way) for way in ways)


def _comes_in(size: int, low: int, interior: int, result: int) -> bool:
    """Whether one of ``size`` elements, ``interior`` apart, lies within a dimension of the result."""
    first = max(0, -(low // (interior + 1)))
    return first < size and low + first * (interior + 1) < result


def stays_in_place(x: HloInstruction, user: HloInstruction) -> bool:
    """Whether element n of ``user`` needs element n of the array ``x`` alone, in row-major order."""
    shape, seen = x.shape, user.shape
    if not isinstance(shape, ArrayShape) or not isinstance(seen, ArrayShape):
        return False
    if OPS[user.opcode].elementwise or user.opcode is Opcode.BITCAST_CONVERT:
        return shape.dims == seen.dims
    if shape.num_elements != seen.num_elements:
        return False
    if user.opcode in (Opcode.BITCAST, Opcode.RESHAPE, Opcode.SLICE):
        return True
    if user.opcode in (Opcode.BROADCAST, Opcode.TRANSPOSE):
        wide = [d for d, size in zip(_dimensions(user), _sizes(x, user), strict=True) if size != 1]
        return wide == sorted(wide)
    return user.opcode is Opcode.REVERSE and all(seen.dims[d] == 1 for d in _dimensions(user))


Digit: TypeAlias = tuple[int, int]
"""Size, and elements of the first array between one index and the next."""


@dataclass(frozen=True)
class Order:
    """Where an array's elements lay in the array that they come from: for each dimension as few digits as can be, the
    slowest first.

    f32[2,6] transposed and seen as f32[3,4] has, for [6,2], ((6, 1),) and ((2, 6),); for [3,4], ((3, 2),) and
    ((2, 1), (2, 6)).
    """

    dims: tuple[tuple[Digit, ...], ...]

    @staticmethod
    def of(dims: Sequence[int]) -> Order:
        """Of the array itself."""
        steps = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
        return Order(tuple(((size, step),) for size, step in zip(dims, steps, strict=True)))

    @property
    def is_own(self) -> bool:
        """Element n lay as element n."""
        step = 1
        for size, own in reversed(self._digits):
            if own != step:
                return False
            step *= size
        return True

    def after(self, x: HloInstruction, user: HloInstruction) -> Order | None:
        """Of ``user``, where ``x`` is in this order. None where an element of it needs others of ``x`` than one."""
        if stays_in_place(x, user):
            return self._reshaped(user.dims)
        if user.opcode is Opcode.TRANSPOSE:
            return Order(tuple(self.dims[d] for d in _dimensions(user)))
        return None

    @property
    def _digits(self) -> list[Digit]:
        return [digit for digits in self.dims for digit in digits if digit[0] != 1]

    @property
    def _joined(self) -> list[Digit]:
        """The same elements in as few digits as can be, wherever dimensions begin."""
        found: list[Digit] = []
        for size, step in self._digits:
            if found and found[-1][1] == size * step:
                size *= found.pop()[0]
            found.append((size, step))
        return found

    def _reshaped(self, dims: Sequence[int]) -> Order | None:
        """None where a dimension would begin within a digit."""
        if 0 in dims:
            return Order.of(dims)
        left = self._joined
        found: list[tuple[Digit, ...]] = []
        for size in reversed(dims):
            digits: list[Digit] = []
            while size > 1:
                count, step = left.pop()
                taken = math.gcd(count, size)
                if taken not in (count, size):
                    return None
                if taken < count:
                    left.append((count // taken, step * taken))
                size //= taken
                if digits and digits[0][0] * digits[0][1] == step:
                    taken, step = taken * digits[0][0], digits.pop(0)[1]
                digits.insert(0, (taken, step))
            found.insert(0, tuple(digits))
        return Order(tuple(found))


def _dimensions(user: HloInstruction) -> tuple[int, ...]:
    return user.attrs_as(DimensionsAttrs).dimensions


def _sizes(x: HloInstruction, user: HloInstruction) -> tuple[int, ...]:
    """Of a broadcast's operand dimensions, or of a transpose's result dimensions: as ``dimensions`` lists them."""
    return x.dims if user.opcode is Opcode.BROADCAST else user.dims
