"""Product fusions: a matrix product and its epilogue, the values computed from its result at the same indices.

The product is computed in *blocks*, parts of its result that fit the second-level cache. The epilogue reads a block
while it is cached, and the product needs no buffer of its size: unless another kernel reads it, all blocks use the same
scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from runtime.fusion.element_graph import ElementGraph, InputLeaf, post_order
from runtime.fusion.element_operations import array_shape
from runtime.fusion.loop_fusion import LoopFusion, loop_fusion
from runtime.fusion.products.factors import Factors, factors_of
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.row_fusion import RowFusionPlan, has_reductions, row_fusion
from runtime.fusion.view_path import access_map
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.shape import ArrayShape

#: Approximate bytes of a block. The block and the packed operands together must fit the second-level
#: cache.
BLOCK_BYTES = 1 << 20
#: Largest bytes of one product of a batch that is not cut. Up to here, cutting it costs more time than
#: exceeding the cache.
MOST_BYTES = 2 * BLOCK_BYTES
#: Least number of rows or columns of a block. With fewer, packing the other operand again would not pay.
LEAST_LINES = 128
#: Granularity of rows and columns of a block: a multiple of the tiles of every kernel and of cache lines.
LINES = 32


@dataclass(frozen=True, slots=True)
class ProductFusion:
    """Plan of a product fusion. ``epilogue`` reads the product as its last input, at its own index.

    The product is that of ``factors``. ``product_result`` is the number of the fusion's result that is the product
    itself, or None if it is not a result. ``dims`` are the product's sizes: first ``batch`` batch dimensions, then
    ``rows`` dimensions of lhs, then those of rhs. ``block`` gives the size of a block along each dimension: 1 up to the
    first dimension that is cut into larger parts, and the full size after it. ``overwrites`` are pairs (result, input)
    that may share memory.
    """

    factors: Factors
    epilogue: LoopFusion | RowFusionPlan
    product_result: int | None
    dims: tuple[int, ...]
    batch: int
    rows: int
    block: tuple[int, ...]
    overwrites: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SlicedProduct:
    """Plan of a product without epilogue, at least one of whose ``factors`` is a slice that is read in place."""

    factors: Factors
    overwrites: tuple[tuple[int, int], ...] = ()


def product_in(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> HloInstruction | None:
    """Return the first product or convolution that a kernel of ``roots`` computes, or None."""
    found = (x for x in post_order(roots, inputs) if x.opcode in _PRODUCTS and x not in inputs)
    return next(found, None)


_PRODUCTS = frozenset({Opcode.DOT, Opcode.CONVOLUTION})


def product_fusion(
    product: HloInstruction,
    roots: Sequence[HloInstruction],
    inputs: Mapping[HloInstruction, int],
) -> ProductFusion | SlicedProduct:
    """Plan one kernel for ``roots``, which are computed from ``product``, or one of which is the product.

    Raises NoEmitterError, with the reason, if there is no such kernel.
    """
    factors = factors_of(product, inputs)
    if not _is_made_by_blas(product):
        raise NoEmitterError(f"{product.name} is no product of floats")
    others = [x for x in roots if x is not product]
    if not others and len(roots) == 1 and any(factor.path for factor in factors.both):
        return SlicedProduct(factors)
    if not others or len(roots) - len(others) > 1:
        raise NoEmitterError(f"nothing is computed of {product.name}")
    number = max(inputs.values()) + 1
    within = {**inputs, product: number}
    if product_in(others, within) is not None:
        raise NoEmitterError("a kernel makes one product")
    plan_epilogue = row_fusion if has_reductions(others, within) else loop_fusion
    epilogue = plan_epilogue(others, within)
    dims = product.dims
    require_same_indices(epilogue, number, product)
    attrs = product.attrs_as(DotAttrs)
    batch = len(attrs.lhs_batch)
    rows = product.operand(0).array_shape.rank - batch - len(attrs.lhs_contracting)
    block = block_sizes(product.array_shape, batch, rows, _cut_dimensions(epilogue))
    root_numbers = [n for n, x in enumerate(roots) if x is not product]
    taken = (factors.lhs.number, factors.rhs.number, number)
    return ProductFusion(
        factors,
        epilogue,
        roots.index(product) if product in roots else None,
        dims,
        batch,
        rows,
        block,
        tuple((root_numbers[result], n) for result, n in epilogue.overwrites if n not in taken),
    )


def _is_made_by_blas(product: HloInstruction) -> bool:
    """Return whether BLAS computes ``product``: a product of floats, not empty, without unusual attributes."""
    shapes = [x.array_shape for x in (*product.operands, product)]
    return not product.attrs_as(DotAttrs).extra and all(
        shape.element_type.is_floating and shape.num_elements for shape in shapes
    )


def _cut_dimensions(epilogue: LoopFusion | RowFusionPlan) -> frozenset[int]:
    """Return the dimensions along which the epilogue can be cut: all except those along which it reduces."""
    if isinstance(epilogue, RowFusionPlan):
        return frozenset(epilogue.fusion.counted)
    return frozenset(range(len(epilogue.pieces[0].dims)))


def block_sizes(shape: ArrayShape, batch: int, rows: int, cut: frozenset[int]) -> tuple[int, ...]:
    """Return the sizes of a block of about ``BLOCK_BYTES``.

    A block is the entire result if that is small, or else one or several products of the batch, or else some rows or
    columns of one product. The longer side of rows and columns is cut, because the other operand is packed again for
    each block. ``cut`` lists the dimensions along which the epilogue can be cut. Raises NoEmitterError if it cannot be
    cut along the necessary ones.
    """
    dims, item = shape.dims, shape.element_type.byte_size
    if math.prod(dims) * item <= BLOCK_BYTES:
        return dims
    if not cut.issuperset(range(batch)):
        raise NoEmitterError("it reduces along a dimension that counts products")
    for d in range(batch):
        each = math.prod(dims[d + 1 :]) * item
        if each <= (MOST_BYTES if d == batch - 1 else BLOCK_BYTES):
            return (*(1,) * d, min(max(1, BLOCK_BYTES // each), dims[d]), *dims[d + 1 :])
    sides = [range(batch, batch + rows), range(batch + rows, len(dims))]
    for side in sorted(sides, key=lambda side: -math.prod(dims[d] for d in side)):
        if cut.issuperset(side):
            return _lines(dims, batch, side, item)
    raise NoEmitterError("it reduces along rows and columns of a large product")


def _lines(dims: tuple[int, ...], batch: int, side: range, item: int) -> tuple[int, ...]:
    """Return a block of some rows or columns of one product, such that all blocks have about the same size.

    ``side`` lists the dimensions to cut, and ``item`` is the byte size of an element.
    """
    across = math.prod(dims[batch:]) // math.prod(dims[d] for d in side)
    lines = max(LEAST_LINES, BLOCK_BYTES // (across * item))
    block = [1] * batch + list(dims[batch:])
    for d in side:
        inner = math.prod(dims[e] for e in side if e > d)
        block[d] = _even(dims[d], max(1, lines // inner))
        if block[d] > 1 or inner <= 1:
            break
    return tuple(block)


def _even(size: int, most: int) -> int:
    """Return the size of the parts into which ``size`` is cut: the fewest parts of at most ``most``, about equal.

    Large parts are rounded up to multiples of ``LINES``.
    """
    part = -(-size // -(-size // most))
    return min(-(-part // LINES) * LINES, most) if part > LINES else part


def require_same_indices(
    epilogue: LoopFusion | RowFusionPlan, number: int, product: HloInstruction
) -> None:
    """Raise NoEmitterError unless the epilogue reads its input ``number``, the product, at its own index only."""
    if isinstance(epilogue, RowFusionPlan):
        dims, graphs = epilogue.fusion.dims, epilogue.graphs
        inside = [each.elements for each in graphs]
        elsewhere = [graph for each in graphs for graph in (each.inits, each.rows)]
    elif len(epilogue.pieces) > 1 or epilogue.pieces[0].ranges or epilogue.updates:
        raise NoEmitterError("what is computed of a product is several loops, or writes a block")
    else:
        (piece,) = epilogue.pieces
        dims, inside, elsewhere = piece.dims, [piece.graph], []
    shape = array_shape(product)
    here = access_map((), shape.dims)
    reads = _reads(inside, number)
    others = _reads((*elsewhere, *epilogue.starts), number)
    same = all(access_map(leaf.path, shape.dims) == here for leaf in reads)
    if dims != shape.dims or others or not same:
        raise NoEmitterError(f"{product.name} is read at other indices than it has")


def _reads(graphs: Iterable[ElementGraph], number: int) -> list[InputLeaf]:
    """Return the leaves of ``graphs`` that read input ``number``."""
    return [leaf for graph in graphs for leaf in graph.input_leaves if leaf.number == number]
