"""Dimension orders (tuples of dimensions, the slowest in memory first), and their translation through views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runtime.lowering import Order
from runtime.program.strides import StridedView
from spmd.analysis.common_factors import common_factors
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape, Layout


def row_major(rank: int) -> Order:
    """Return the row-major order of ``rank`` dimensions."""
    return tuple(range(rank))


def is_row_major(order: Order) -> bool:
    """Return whether ``order`` is row-major."""
    return order == row_major(len(order))


def memory_order(view: StridedView) -> Order:
    """Return the dimensions of ``view`` by descending stride. Dimensions of size 1 or stride 0 are left out."""
    moving = [d for d, n in enumerate(view.dims) if n > 1 and view.strides[d]]
    return tuple(sorted(moving, key=lambda d: -abs(view.strides[d])))


def refilled(order: Order, part: Iterable[int]) -> Order:
    """Return ``order`` with the dimensions of ``part`` rearranged, in the sequence of ``part``, among their positions.

    refilled((0, 1, 2, 3), (3, 1)) == (0, 3, 2, 1)
    """
    wanted = list(part)
    positions = [i for i, d in enumerate(order) if d in wanted]
    result = list(order)
    for position, d in zip(positions, wanted, strict=True):
        result[position] = d
    return tuple(result)


def restricted(order: Order, dims: Iterable[int]) -> Order:
    """Return ``order`` without the dimensions that are not in ``dims``."""
    chosen = set(dims)
    return tuple(d for d in order if d in chosen)


def with_order(shape: ArrayShape, order: Order) -> ArrayShape:
    """Return ``shape`` with the layout ``order``. A row-major layout is omitted unless it has a suffix."""
    suffix = shape.layout.suffix if shape.layout is not None else ""
    if is_row_major(order) and not suffix:
        return shape.without_layout()
    return replace(shape, layout=Layout(order[::-1], suffix))


def before(view: HloInstruction, order: Order) -> Order | None:
    """Return the order of a view's first operand for which the view's result has ``order``; None if there is none.

    Both orders may leave out dimensions that do not determine the result's order.

        f32[6,8] reshape(f32[6,2,4] x):   (1, 0)  =>  (1, 2, 0)
        f32[6,2,4] reshape(f32[6,8] x):   (1, 2, 0)  =>  (1, 0),   (1, 0, 2)  =>  None
    """
    if view.opcode is Opcode.TRANSPOSE:
        dimensions = view.attrs_as(DimensionsAttrs).dimensions
        return tuple(dimensions[d] for d in order)
    if view.opcode is Opcode.BROADCAST:
        dimensions = view.attrs_as(DimensionsAttrs).dimensions
        return tuple(dimensions.index(d) for d in order if d in dimensions)
    if view.opcode in (Opcode.RESHAPE, Opcode.BITCAST):
        return _before_reshape(view.operand(0).dims, view.dims, order)
    return order if len(view.dims) == len(view.operand(0).dims) else None


def _before_reshape(old: Order, new: Order, order: Order) -> Order | None:
    """Return ``before`` of a reshape from the sizes ``old`` to the sizes ``new``."""
    if 0 in old or 0 in new:
        return None
    run_of = {d: run for run in common_factors(old, new) for d in run[1]}
    wanted = [d for d in order if d in run_of]
    result: list[int] = []
    at = 0
    while at < len(wanted):
        dims_before, dims_after = run_of[wanted[at]]
        if wanted[at : at + len(dims_after)] != dims_after:
            return None
        result.extend(dims_before)
        at += len(dims_after)
    return tuple(result)
