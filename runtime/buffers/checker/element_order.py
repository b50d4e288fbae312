"""Element order: which operations move elements and which leave them in place, for the buffer checker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape


def is_read(x: HloInstruction, user: HloInstruction) -> bool:
    """Return whether any element of ``user`` needs one of ``x``. Padding may cut off all of its operand."""
    if user.opcode is not Opcode.PAD or user.operand(0) is not x or user.operand(1) is x:
        return True
    attrs = user.attrs_as(PadAttrs)
    ways = zip(x.dims, attrs.low, attrs.interior, user.dims, strict=True)
    return all(_comes_in(*way) for way in ways)


def _comes_in(size: int, low: int, interior: int, result: int) -> bool:
    """Return whether one of ``size`` elements, ``interior`` apart, lies within a dimension of the result."""
    first = max(0, -(low // (interior + 1)))
    return first < size and low + first * (interior + 1) < result


def stays_in_place(x: HloInstruction, user: HloInstruction) -> bool:
    """Return whether element n of ``user`` needs only element n of the array ``x``, in row-major order."""
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


SubDimension: TypeAlias = tuple[int, int]
"""Size, and the stride in elements of the first array."""


@dataclass(frozen=True)
class Order:
    """Location of elements in the array that they come from: per dimension the fewest sub-dimensions, slowest first.
    Repeated elements have a stride of 0.

    f32[2,6] transposed and seen as f32[3,4] has, for [6,2], ((6, 1),) and ((2, 6),); for [3,4], ((3, 2),) and
    ((2, 1), (2, 6)).
    """

    dims: tuple[tuple[SubDimension, ...], ...]

    @staticmethod
    def of(dims: Sequence[int]) -> Order:
        """Return the order of the first array itself."""
        steps = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
        return Order(tuple(((size, step),) for size, step in zip(dims, steps, strict=True)))

    @property
    def is_own(self) -> bool:
        """True if element n comes from element n of the first array."""
        step = 1
        for size, own in reversed(self._sub_dimensions):
            if own != step:
                return False
            step *= size
        return True

    def after(self, x: HloInstruction, user: HloInstruction) -> Order | Window | None:
        """Return the order of ``user`` if ``x`` has this order; None if an element of it needs several of ``x``."""
        if stays_in_place(x, user):
            return self._reshaped(user.dims)
        if user.opcode is Opcode.TRANSPOSE:
            return Order(tuple(self.dims[d] for d in _dimensions(user)))
        if user.opcode is Opcode.BROADCAST:
            return self._repeated(user)
        if user.opcode is Opcode.SLICE and (cut := self._cut(x, user)) is not None:
            return cut
        if self.is_own:
            return Window(x.dims, (0,) * len(x.dims)).after(x, user)
        return None

    def _repeated(self, user: HloInstruction) -> Order:
        dims: list[tuple[SubDimension, ...]] = [((size, 0),) for size in user.dims]
        for own, d in zip(self.dims, _dimensions(user), strict=True):
            dims[d] = own
        return Order(tuple(dims))

    def _cut(self, x: HloInstruction, user: HloInstruction) -> Order | None:
        """Return the order of a slice; None if it cuts a dimension of ``x`` along which elements are not repeated."""
        dims: list[tuple[SubDimension, ...]] = []
        for parts, size, left in zip(self.dims, x.dims, user.dims, strict=True):
            if size != left and any(step for _, step in parts):
                return None
            dims.append(parts if size == left else ((left, 0),))
        return Order(tuple(dims))

    @property
    def _sub_dimensions(self) -> list[SubDimension]:
        return [part for parts in self.dims for part in parts if part[0] != 1]

    @property
    def _joined(self) -> list[SubDimension]:
        """The sub-dimensions, merged as far as possible across dimensions."""
        found: list[SubDimension] = []
        for size, step in self._sub_dimensions:
            if found and found[-1][1] == size * step:
                size *= found.pop()[0]
            found.append((size, step))
        return found

    def _reshaped(self, dims: Sequence[int]) -> Order | None:
        """Return the order with sizes ``dims``; None if a dimension would begin within a sub-dimension."""
        if 0 in dims:
            return Order.of(dims)
        left = self._joined
        found: list[tuple[SubDimension, ...]] = []
        for size in reversed(dims):
            parts: list[SubDimension] = []
            while size > 1:
                count, step = left.pop()
                taken = math.gcd(count, size)
                if taken not in (count, size):
                    return None
                if taken < count:
                    left.append((count // taken, step * taken))
                size //= taken
                if parts and parts[0][0] * parts[0][1] == step:
                    taken, step = taken * parts[0][0], parts.pop(0)[1]
                parts.insert(0, (taken, step))
            found.insert(0, tuple(parts))
        return Order(tuple(found))


@dataclass(frozen=True)
class Window:
    """Location of elements that were cut out of an array of ``array`` sizes: element i is the array's i + ``shift``."""

    array: tuple[int, ...]
    shift: tuple[int, ...]
    is_own: ClassVar[bool] = False

    def after(self, x: HloInstruction, user: HloInstruction) -> Order | Window | None:
        """Return the location of ``user``'s elements if those of ``x`` are here; None if an element needs several."""
        if OPS[user.opcode].elementwise and x.dims == user.dims:
            return self
        moved = _moved(x, user)
        if moved is None:
            return None
        shift = tuple(a + b for a, b in zip(self.shift, moved, strict=True))
        if user.dims == self.array and not any(shift):
            return Order.of(self.array)
        return Window(self.array, shift)


def _moved(x: HloInstruction, user: HloInstruction) -> tuple[int, ...] | None:
    """Return by how much an element's index in ``x`` exceeds that in ``user``; None if it does not for all elements."""
    if user.opcode is Opcode.SLICE:
        attrs = user.attrs_as(SliceAttrs)
        return attrs.starts if set(attrs.strides) <= {1} else None
    if user.opcode is Opcode.PAD and user.operand(0) is x and user.operand(1) is not x:
        pad = user.attrs_as(PadAttrs)
        return None if any(pad.interior) else tuple(-low for low in pad.low)
    if user.opcode is Opcode.CONCATENATE and user.operands.count(x) == 1:
        (along,) = _dimensions(user)
        before = sum(y.dims[along] for y in user.operands[: user.operands.index(x)])
        return tuple(-before if d == along else 0 for d in range(len(x.dims)))
    return None


def _dimensions(user: HloInstruction) -> tuple[int, ...]:
    return user.attrs_as(DimensionsAttrs).dimensions


def _sizes(x: HloInstruction, user: HloInstruction) -> tuple[int, ...]:
    """Return the sizes to which ``dimensions`` refers: the operand's for a broadcast, else the result's."""
    return x.dims if user.opcode is Opcode.BROADCAST else user.dims
