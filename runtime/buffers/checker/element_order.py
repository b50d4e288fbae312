"""Element order, for the buffer checker: where an operation puts the elements of its operand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape


def is_read(x: HloInstruction, user: HloInstruction) -> bool:
    """Return whether any element of ``user`` needs an element of ``x``. A pad may cut off its entire operand."""
    if user.opcode is not Opcode.PAD or user.operand(0) is not x or user.operand(1) is x:
        return True
    attrs = user.attrs_as(PadAttrs)
    ways = zip(x.dims, attrs.low, attrs.interior, user.dims, strict=True)
    return all(_comes_in(*way) for way in ways)


def _comes_in(size: int, low: int, interior: int, result: int) -> bool:
    """Return whether one of ``size`` elements is inside a dimension of a pad's result.

    low, interior: padding before and between the elements. result: size of the result.
    """
    first = max(0, -(low // (interior + 1)))
    return first < size and low + first * (interior + 1) < result


def stays_in_place(x: HloInstruction, user: HloInstruction) -> bool:
    """Return whether element n of ``user`` needs no element of ``x`` but element n, both in row-major order."""
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


#: Largest number of elements of a reduction for which the location of each element is computed.
_FEW = 8

SubDimension: TypeAlias = tuple[int, int]
"""Size of a sub-dimension, and its stride in the array that the elements come from, in elements.

The stride is negative if the elements are reversed, and 0 if they are repeated.
"""


@dataclass(frozen=True)
class Order:
    """Map from the elements of a value to their row-major numbers in the array that they come from, the first array.

    dims: for each dimension of the value the fewest sub-dimensions, slowest first. For example f32[2,6], transposed to
    [6,2], has ((6, 1),) and ((2, 6),); reshaped to [3,4], it has ((3, 2),) and ((2, 1), (2, 6)).

    offset: number of the first element. It may be negative if a concatenation or a pad puts other elements first; the
    map holds only for the elements that come from the array.
    """

    dims: tuple[tuple[SubDimension, ...], ...]
    offset: int = 0

    @staticmethod
    def of(dims: Sequence[int]) -> Order:
        """Return the order of the first array itself, of sizes ``dims``."""
        steps = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
        return Order(tuple(((size, step),) for size, step in zip(dims, steps, strict=True)))

    @property
    def is_own(self) -> bool:
        """Return whether element n is element n of the first array."""
        step = 1
        for size, own in reversed(self._sub_dimensions):
            if own != step:
                return False
            step *= size
        return self.offset == 0

    @property
    def _sub_dimensions(self) -> list[SubDimension]:
        """Return the sub-dimensions of all dimensions, without those of size 1."""
        return [part for parts in self.dims for part in parts if part[0] != 1]

    @property
    def _joined(self) -> list[SubDimension]:
        """Return the sub-dimensions of all dimensions, merged as far as possible."""
        found: list[SubDimension] = []
        for size, step in self._sub_dimensions:
            if found and found[-1][1] == size * step:
                size *= found.pop()[0]
            found.append((size, step))
        return found

    def transposed(self, dimensions: Sequence[int]) -> Order:
        """Return the order of the transpose with ``dimensions``."""
        return Order(tuple(self.dims[d] for d in dimensions), self.offset)

    def broadcast(self, dims: Sequence[int], dimensions: Sequence[int]) -> Order:
        """Return the order of the broadcast to ``dims``, which repeats elements along all but ``dimensions``."""
        found: list[tuple[SubDimension, ...]] = [((size, 0),) for size in dims]
        for parts, d in zip(self.dims, dimensions, strict=True):
            found[d] = parts
        return Order(tuple(found), self.offset)

    def reversed(self, dimensions: Sequence[int]) -> Order:
        """Return the order of the value reversed along ``dimensions``."""
        parts = [part for d in dimensions for part in self.dims[d]]
        offset = self.offset + sum((size - 1) * step for size, step in parts)
        reversed_dims = (
            tuple((size, -step) for size, step in each) if d in dimensions else each
            for d, each in enumerate(self.dims)
        )
        return Order(tuple(reversed_dims), offset)

    def cut(
        self, dims: Sequence[int], starts: Sequence[int], strides: Sequence[int] | None = None
    ) -> Order | None:
        """Return the order of a window of sizes ``dims``, which may extend beyond the value.

        Returns None if a dimension that is cut has several sub-dimensions.
        """
        found, offset = [], self.offset
        for d, (parts, size, start, stride) in enumerate(
            zip(self.dims, dims, starts, strides or (1,) * len(dims), strict=True)
        ):
            if (start, stride, size) == (0, 1, math.prod(part[0] for part in parts)):
                found.append(parts)
                continue
            if len(parts) > 1:
                return None
            # A single element may have any stride. It gets the stride of a row-major array of these sizes.
            step = parts[0][1] if parts else math.prod(dims[d + 1 :])
            found.append(((size, step if size == 1 else step * stride),))
            offset += start * step
        return Order(tuple(found), offset)

    def reshaped(self, dims: Sequence[int]) -> Order | None:
        """Return the order of the reshape to ``dims``; None if a dimension would begin inside a sub-dimension."""
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
        return Order(tuple(found), self.offset)


Window: TypeAlias = tuple[tuple[int, int], ...]
"""First index and end along each dimension."""


@dataclass(frozen=True)
class Location:
    """Location of the elements of a first array in another value.

    The elements in ``window`` of the value, if any, come from the first array by ``order``; other elements do not.
    """

    order: Order
    window: Window

    @staticmethod
    def of(dims: Sequence[int]) -> Location:
        """Return the location of all elements in the first array itself."""
        return Location(Order.of(dims), tuple((0, size) for size in dims))

    def after(self, x: HloInstruction, user: HloInstruction) -> list[Location] | None:
        """Return the locations in ``user``, given that ``x`` has this location.

        Returns None if they are not known, as when an element of ``user`` needs many elements of ``x``.
        """
        if OPS[user.opcode].elementwise and x.dims == user.dims:
            return [self]
        if user.opcode is Opcode.TRANSPOSE:
            transposed = self.order.transposed(_dimensions(user))
            return [Location(transposed, tuple(self.window[d] for d in _dimensions(user)))]
        if user.opcode is Opcode.BROADCAST:
            window = [(0, size) for size in user.dims]
            for own, d in zip(self.window, _dimensions(user), strict=True):
                window[d] = own
            return [Location(self.order.broadcast(user.dims, _dimensions(user)), tuple(window))]
        if user.opcode is Opcode.REVERSE:
            return [self._reversed(x.dims, _dimensions(user))]
        if user.opcode is Opcode.SLICE:
            attrs = user.attrs_as(SliceAttrs)
            return self._cut(user.dims, attrs.starts, attrs.strides)
        if user.opcode is Opcode.DYNAMIC_SLICE:
            return self._cut_dynamically(x, user)
        if user.opcode in (Opcode.CONCATENATE, Opcode.PAD):
            return self._joined(x, user)
        if user.opcode is Opcode.REDUCE:
            return self._reduced(x, user)
        order = self.order.reshaped(user.dims) if stays_in_place(x, user) else None
        return (
            None if order is None else [Location(order, self._reshaped_window(x.dims, user.dims))]
        )

    def _reshaped_window(self, before: Sequence[int], after: Sequence[int]) -> Window:
        """Return the window after a reshape. It is the entire value unless only dimensions of size 1 change."""
        if [size for size in before if size != 1] != [size for size in after if size != 1]:
            return tuple((0, size) for size in after)
        wide = iter([own for own, size in zip(self.window, before, strict=True) if size != 1])
        return tuple((0, 1) if size == 1 else next(wide) for size in after)

    def _reversed(self, dims: Sequence[int], dimensions: Sequence[int]) -> Location:
        """Return the location in a value of sizes ``dims`` reversed along ``dimensions``."""
        window = tuple(
            (size - end, size - first) if d in dimensions else (first, end)
            for d, (size, (first, end)) in enumerate(zip(dims, self.window, strict=True))
        )
        return Location(self.order.reversed(dimensions), window)

    def _cut(
        self, dims: Sequence[int], starts: Sequence[int], strides: Sequence[int] | None = None
    ) -> list[Location] | None:
        """Return the location in a window of sizes ``dims``, which may extend beyond the value.

        The list is empty if the window has no elements of the first array. Returns None if the order is not known.
        """
        window = []
        for (first, end), size, start, stride in zip(
            self.window, dims, starts, strides or (1,) * len(dims), strict=True
        ):
            window.append(
                (max(0, -(-(first - start) // stride)), min(size, -(-(end - start) // stride)))
            )
        if any(first >= end for first, end in window):
            return []
        order = self.order.cut(dims, starts, strides)
        return None if order is None else [Location(order, tuple(window))]

    def _cut_dynamically(self, x: HloInstruction, user: HloInstruction) -> list[Location] | None:
        """Return the location in a dynamic slice, for any starts; None if it depends on them.

        It does not depend on the starts along dimensions that are not cut or that repeat elements, and along dimensions
        in which both the window and the slice have one index.
        """
        if user.operand(0) is not x or x in user.operands[1:]:
            return None
        starts, window = [], []
        for before, size, own, parts in zip(
            x.dims, user.dims, self.window, self.order.dims, strict=True
        ):
            is_one = (size, own[1] - own[0]) == (1, 1)
            if size != before and not is_one and any(step for _, step in parts):
                return None
            starts.append(0 if size == before else own[0])
            window.append(own if size == before else (0, size))
        order = self.order.cut(user.dims, starts)
        return None if order is None else [Location(order, tuple(window))]

    def _joined(self, x: HloInstruction, user: HloInstruction) -> list[Location] | None:
        """Return the locations in a concatenation or pad; None if they are not known."""
        found: list[Location] = []
        for before in _elements_before(x, user):
            cut = None if before is None else self._cut(user.dims, [-n for n in before])
            if cut is None:
                return None
            found += cut
        return found

    def _reduced(self, x: HloInstruction, user: HloInstruction) -> list[Location] | None:
        """Return the locations in a reduction, one for each of the combined elements; None if these are many."""
        if user.num_operands != 2 or user.operand(0) is not x or user.operand(1) is x:
            return None
        axes = _dimensions(user)
        if math.prod(x.dims[d] for d in axes) > _FEW:
            return None
        others = [d for d in range(len(x.dims)) if d not in axes]
        found: list[Location] = []
        for indices in itertools.product(*(range(x.dims[d]) for d in axes)):
            at = dict(zip(axes, indices, strict=True))
            sizes = [1 if d in at else size for d, size in enumerate(x.dims)]
            cut = self._cut(sizes, [at.get(d, 0) for d in range(len(x.dims))])
            if cut is None:
                return None
            found += [
                Location(
                    Order(tuple(each.order.dims[d] for d in others), each.order.offset),
                    tuple(each.window[d] for d in others),
                )
                for each in cut
            ]
        return found


def _elements_before(x: HloInstruction, user: HloInstruction) -> list[tuple[int, ...] | None]:
    """Return the numbers of elements that a concatenation or pad puts before those of ``x``, along each dimension.

    There is an entry for each time that ``x`` is an operand. It is None if elements of ``x`` are not adjacent.
    """
    if user.opcode is Opcode.PAD:
        pad = user.attrs_as(PadAttrs)
        return [None if any(pad.interior) or user.operand(1) is x else pad.low]
    (along,) = _dimensions(user)
    ends = [0, *accumulate(y.dims[along] for y in user.operands)]
    return [
        tuple(ends[i] if d == along else 0 for d in range(len(x.dims)))
        for i, y in enumerate(user.operands)
        if y is x
    ]


def _dimensions(user: HloInstruction) -> tuple[int, ...]:
    """Return the ``dimensions`` attribute of ``user``."""
    return user.attrs_as(DimensionsAttrs).dimensions


def _sizes(x: HloInstruction, user: HloInstruction) -> tuple[int, ...]:
    """Return the sizes of ``dimensions``: those of the operand ``x`` for a broadcast, else those of the result."""
    return x.dims if user.opcode is Opcode.BROADCAST else user.dims
