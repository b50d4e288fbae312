"""A product whose sums are scattered: a device's part is summed up on its way there, while the next is multiplied.

Sums of narrow floats travel in f32 and are rounded at the end, as a reduce-scatter adds them.
"""

from __future__ import annotations

from collectives.passes.dot_dimensions import DotDimension, dot_dimensions
from collectives.passes.window_ring import Piece, WindowRing, part_of, part_of_product, ring_of
from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, DotAttrs
from spmd.ops.reduction import reduction_kind
from spmd.passes.rewrite import is_pinned
from spmd.shape import ArrayShape


@dataclass(frozen=True)
class ScatteredProduct:
    """A product that is reduce-scattered, reduce-scatter(dot(..)) by sums: ``dimension`` is the one
    that is scattered.
    """

    dot: HloInstruction
    scatter: HloInstruction
    dimension: DotDimension
    ring: WindowRing

    @property
    def tile(self) -> int:
        """The size of ``dimension`` that each device gets."""
        assert self.dimension.result is not None
        return self.scatter.dims[self.dimension.result]

    @property
    def collective(self) -> HloInstruction:
        return self.scatter

    def in_parts(self, pieces: tuple[Piece, ...], b: Builder) -> HloInstruction:
        """Return the result of the reduce-scatter. A part starts at the member after its target and ends at the
        target."""
        return _windowed(self, pieces, b)


def scattered_product(scatter: HloInstruction) -> ScatteredProduct | None:
    if is_pinned(scatter) or scatter.num_operands != 1:
        return None
    if not isinstance(scatter.shape, ArrayShape):
        return None
    dot = scatter.operand(0)
    if dot.opcode is not Opcode.DOT or is_pinned(dot) or dot.users != (scatter,) or dot.is_root:
        return None
    if dot.attrs_as(DotAttrs).extra or reduction_kind(scatter.to_apply) is not ReductionKind.SUM:
        return None
    ring = ring_of(scatter)
    if ring is None:
        return None
    along = scatter.attrs_as(CollectiveAttrs).dimension
    dimension = next(x for x in dot_dimensions(dot) if x.result == along)
    return ScatteredProduct(dot, scatter, dimension, ring)


def _windowed(product: ScatteredProduct, pieces: tuple[Piece, ...], b: Builder) -> HloInstruction:
    kind = product.scatter.array_shape.element_type
    sums: list[HloInstruction | None] = [None] * len(pieces)
    for step in range(product.ring.size):
        for n, piece in enumerate(pieces):
            at = product.ring.offset(step + 1, product.tile, piece.start, b)
            made = b.as_type(_product_of_part(product, at, piece, b), kind.accumulator)
            before = sums[n]
            if before is not None:
                come = product.ring.passed_on(before, b)
                come.annotations = product.scatter.annotations.of_parts()
                made = b.add(come, made)
            sums[n] = made
    found = [b.as_type(x, kind) for x in sums if x is not None]
    assert product.dimension.result is not None
    return found[0] if len(found) == 1 else b.concatenate(found, product.dimension.result)


def _product_of_part(
    product: ScatteredProduct, at: HloInstruction, piece: Piece, b: Builder
) -> HloInstruction:
    lhs, rhs = (
        x if d is None else part_of(x, d, at, piece.size, b)
        for x, d in zip(product.dot.operands, product.dimension.operands, strict=True)
    )
    return part_of_product(product.dot, lhs, rhs, b)
