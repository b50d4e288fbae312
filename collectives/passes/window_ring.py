"""Rings of devices that pass pieces of an array on: the pairs, and the owner of the piece that a
device has at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.passes.device_scalars import position_scalar
from collectives.passes.groups import known_groups
from spmd.builder import Builder
from spmd.device_groups import DeviceGroups
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DotAttrs
from spmd.shape import PrimitiveType
from spmd.source_target_pairs import LinePairs, ListedPairs, Rotation, SourceTargetPairs


@dataclass(frozen=True)
class WindowRing:
    """Circles of ``size`` devices, in each of which the members stand in the order of the collective."""

    groups: DeviceGroups
    size: int

    def passed_on(self, x: HloInstruction, b: Builder) -> HloInstruction:
        """Return the ``x`` of the member that is one position further on."""
        return b.collective_permute(x, self.pairs(-1))

    def pairs(self, distance: int) -> SourceTargetPairs:
        """Return the pairs in which each member sends to the one ``distance`` positions after it."""
        if self.groups.lines is not None:
            return LinePairs(self.groups.lines, Rotation(distance))
        return ListedPairs(
            tuple(
                (device, group[(position + distance) % self.size])
                for group in self.groups
                for position, device in enumerate(group)
            )
        )

    def offset(self, shift: int, tile: int, start: int, b: Builder) -> HloInstruction:
        """Return s32[]: the offset of the part ``start`` of the tile that belongs to the member ``shift`` positions
        after this one.
        """
        return position_scalar(b, self.groups, shift=shift, times=tile, start=start)


def ring_of(collective: HloInstruction) -> WindowRing | None:
    """Return the ring. Returns None if the groups are unknown, do not cover all devices in equal sizes, or if layouts
    are prescribed.
    """
    attrs = collective.attrs_as(CollectiveAttrs)
    groups = None if attrs.constrain_layout else known_groups(collective)
    assert collective.parent is not None
    module = collective.parent.module
    if groups is None or module is None or module.replica_count > 1:
        return None
    size = groups.size
    if size is None or size < 2 or not groups.covers(module.num_partitions):
        return None
    return WindowRing(groups, size)


@dataclass(frozen=True)
class Piece:
    """Part of every tile along the dimension that is cut, ``size`` from ``start`` on."""

    start: int
    size: int


def pieces_of(tile: int, count: int) -> tuple[Piece, ...]:
    """Return at most ``count`` equal pieces."""
    count = max(n for n in range(1, min(count, tile) + 1) if tile % n == 0)
    size = tile // count
    return tuple(Piece(n * size, size) for n in range(count))


def cut(x: HloInstruction, dimension: int, piece: Piece, b: Builder) -> HloInstruction:
    """Return ``piece`` of the tile ``x``."""
    if piece.size == x.dims[dimension]:
        return x
    return b.slice_along(x, dimension, piece.start, piece.start + piece.size)


def part_of(
    x: HloInstruction, dimension: int, start: HloInstruction, size: int, b: Builder
) -> HloInstruction:
    """Return ``size`` elements of ``x`` from ``start`` on along ``dimension``."""
    sizes = [size if d == dimension else n for d, n in enumerate(x.dims)]
    return b.dynamic_slice(x, _at(x.dims, dimension, start, b), sizes)


def part_of_product(
    dot: HloInstruction, lhs: HloInstruction, rhs: HloInstruction, b: Builder
) -> HloInstruction:
    """Return the product ``dot`` of parts of its operands."""
    made = b.dot(lhs, rhs, dot.attrs_as(DotAttrs), dot.array_shape.element_type)
    made.annotations = dot.annotations.of_parts()
    return made


def with_part(
    x: HloInstruction, part: HloInstruction, dimension: int, start: HloInstruction, b: Builder
) -> HloInstruction:
    """Return ``x`` with ``part`` written at ``start`` along ``dimension``."""
    return b.dynamic_update_slice(x, part, _at(x.dims, dimension, start, b))


def _at(
    dims: Sequence[int], dimension: int, start: HloInstruction, b: Builder
) -> list[HloInstruction]:
    zero = b.scalar(PrimitiveType.S32, 0)
    return [start if d == dimension else zero for d in range(len(dims))]
