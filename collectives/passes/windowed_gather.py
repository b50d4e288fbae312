"""A product of what is gathered: each part is multiplied when it has come, while the next one is on its way.

Parts come in another order on each device. Where they are terms of a sum, its rounding would depend on the device, and
members that have multiplied by the same array would no longer have the same: so only sums that do not round are done.
"""

from __future__ import annotations

from collectives.passes.dot_dimensions import DotDimension, Role, dot_dimensions
from collectives.passes.window_ring import (
    Piece,
    WindowRing,
    cut,
    part_of,
    part_of_product,
    ring_of,
    with_part,
)
from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DotAttrs
from spmd.passes.rewrite import is_pinned
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class GatheredProduct:
    """A product of an all-gather, dot(.., all-gather(tile), ..): ``operand`` is the gathered one's number,
    ``dimension`` the one gathered along.
    """

    dot: HloInstruction
    gather: HloInstruction
    operand: int
    dimension: DotDimension
    ring: WindowRing

    @property
    def collective(self) -> HloInstruction:
        return self.gather

    @property
    def own(self) -> HloInstruction:
        return self.gather.operand(0)

    @property
    def tile(self) -> int:
        """The size of ``dimension`` that each device holds."""
        d = self.dimension.operands[self.operand]
        assert d is not None
        return self.own.dims[d]

    def in_parts(self, pieces: tuple[Piece, ...], b: Builder) -> HloInstruction:
        """Return the product's value, computed from parts that come from ever more distant members of the ring."""
        return _windowed(self, pieces, b)

    def of_part(self, part: HloInstruction, other: HloInstruction, b: Builder) -> HloInstruction:
        """Return the product of ``part`` of the gathered value and ``other``, the other operand or a part of it."""
        lhs, rhs = (part, other) if self.operand == 0 else (other, part)
        return part_of_product(self.dot, lhs, rhs, b)


def gathered_product(dot: HloInstruction) -> GatheredProduct | None:
    if is_pinned(dot) or dot.attrs_as(DotAttrs).extra:
        return None
    for number, gather in enumerate(dot.operands):
        if gather.opcode is not Opcode.ALL_GATHER or is_pinned(gather):
            continue
        if gather.users != (dot,) or not isinstance(gather.shape, ArrayShape):
            continue
        ring = ring_of(gather) if gather.num_operands == 1 else None
        if ring is None or dot.operands.count(gather) != 1:
            continue
        along = gather.attrs_as(CollectiveAttrs).dimension
        dimension = next(x for x in dot_dimensions(dot) if x.operands[number] == along)
        kind = dot.array_shape.element_type
        if dimension.role is Role.CONTRACTING and not kind.is_integer:
            continue
        return GatheredProduct(dot, gather, number, dimension, ring)
    return None


def _windowed(product: GatheredProduct, pieces: tuple[Piece, ...], b: Builder) -> HloInstruction:
    along = product.dimension.operands[product.operand]
    assert along is not None
    blocks = [cut(product.own, along, piece, b) for piece in pieces]
    result: HloInstruction | None = None
    for step in range(product.ring.size):
        for n, piece in enumerate(pieces):
            if step:
                blocks[n] = product.ring.passed_on(blocks[n], b)
                blocks[n].annotations = product.gather.annotations.of_parts()
            at = product.ring.offset(step, product.tile, piece.start, b)
            result = _with_product(product, blocks[n], at, piece, result, b)
    assert result is not None
    return result


def _with_product(
    product: GatheredProduct,
    part: HloInstruction,
    at: HloInstruction,
    piece: Piece,
    result: HloInstruction | None,
    b: Builder,
) -> HloInstruction:
    """Return ``result`` with the product of ``part``, whose offset in the gathered dimension is ``at``."""
    dimension = product.dimension
    other, across = (
        product.dot.operand(1 - product.operand),
        dimension.operands[1 - product.operand],
    )
    if across is not None:
        other = part_of(other, across, at, piece.size, b)
    made = product.of_part(part, other, b)
    if dimension.role is Role.CONTRACTING:
        return made if result is None else b.add(result, made)
    if result is None:
        result = b.uninitialized(product.dot.array_shape.without_layout())
    assert dimension.result is not None
    return with_part(result, made, dimension.result, at, b)
