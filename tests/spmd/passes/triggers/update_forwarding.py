"""Updates at constant places, one after the other, of which slices are read that one update or the first array holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from spmd.hlo import HloInstruction, HloModule
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.programs import ANY_TYPE, Program
from tests.spmd.passes.triggers.registry import Rng, trigger

#: The begin and the end of a part in each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]

_PLACES = (PrimitiveType.S32, PrimitiveType.S64, PrimitiveType.S8)


@trigger("update-forwarding")
def modules(rng: Rng) -> HloModule:
    """Some of what is read goes into the array again, or into it alone."""
    p = Program(rng)
    kind, dims = p.element_type(ANY_TYPE), p.dims(low=1, empty=False)
    array = p.value(kind, dims)
    boxes: list[Box] = []
    read: list[HloInstruction] = []
    for _ in range(p.integer(1, 5)):
        if read and p.chance():
            update = read[-1] if p.chance() else read.pop()
        else:
            update = p.value(kind, [p.integer(1, size) for size in dims])
        starts = [p.integer(-3, size + 3) for size in dims]
        place = p.choose(_PLACES)
        array = p.b.dynamic_update_slice(array, update, [p.b.scalar(place, s) for s in starts])
        at = [min(max(0, s), n - m) for s, n, m in zip(starts, dims, update.dims, strict=True)]
        boxes.append(tuple((s, s + m) for s, m in zip(at, update.dims, strict=True)))
        if p.chance(0.4):
            read.append(_read(p, array, boxes))
    return p.module(*read, *(_read(p, array, boxes) for _ in range(p.integer(1, 3))))


def _read(p: Program, array: HloInstruction, boxes: Sequence[Box]) -> HloInstruction:
    """A slice of elements that all come from one of the updates of ``boxes``, or from none of them."""
    whole = tuple((0, size) for size in array.dims)
    box = _part(p, p.choose((whole, *boxes)))
    while not _is_of_one(box, boxes):
        box = _part(p, p.choose((whole, *boxes, *boxes[-1:] * 3)))
    starts, limits = zip(*box, strict=True)
    return p.b.slice(array, starts, limits, [p.choose((1, 1, 2)) for _ in box])


def _part(p: Program, box: Box) -> Box:
    if p.chance(0.3):
        return box
    starts = [p.integer(start, end - 1) for start, end in box]
    return tuple((s, p.integer(s + 1, end)) for s, (_, end) in zip(starts, box, strict=True))


def _is_of_one(box: Box, boxes: Sequence[Box]) -> bool:
    for other in reversed(boxes):
        pairs = list(zip(box, other, strict=True))
        if all(start < high and low < end for (start, end), (low, high) in pairs):
            return all(low <= start and end <= high for (start, end), (low, high) in pairs)
    return True
