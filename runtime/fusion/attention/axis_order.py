"""Order of the score dimensions of a region, in which each of its products has batch dimensions, rows and columns."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.fusion.attention.score_axes import Axes
from runtime.fusion.attention.sinks import FLOATS, MAX_DEPTH, factor_dims
from runtime.fusion.element_operations import is_plain
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs


@dataclass(frozen=True)
class ScoreProduct:
    """Product of rows and columns along one short dimension.

    rows: number of the operand that has the rows. column: dimension of the result that the other operand has alone.
    batch: the common dimensions of the result.
    """

    rows: int
    column: int
    batch: int


def score_products(x: HloInstruction) -> list[ScoreProduct]:
    """Return the ways to see ``x`` as a product of rows and columns: up to two, by which operand has the rows."""
    if x.opcode is not Opcode.DOT or not is_plain(x) or 0 in x.dims:
        return []
    attrs = x.attrs_as(DotAttrs)
    types = {one.array_shape.element_type for one in (x, *x.operands)}
    if attrs.extra or len(attrs.lhs_contracting) != 1 or not types <= FLOATS:
        return []
    if not 0 < x.operand(0).dims[attrs.lhs_contracting[0]] <= MAX_DEPTH:
        return []
    batch = len(attrs.lhs_batch)
    middle = batch + len(factor_dims(x, 0).free)
    long = [
        [d for d in r if x.dims[d] != 1] for r in (range(batch, middle), range(middle, len(x.dims)))
    ]
    if not all(long):
        return []
    return [
        ScoreProduct(1 - number, own[0], batch) for number, own in enumerate(long) if len(own) == 1
    ][::-1]


def canonical_order(axes_of: Mapping[HloInstruction, Axes], columns: int) -> tuple[int, ...] | None:
    """Return the axes with batch dimensions first, then other dimensions of rows, the longest one last, and columns.

    The common dimensions of each product must be the first ones. The result is None if there is no such order.
    """
    sizes: dict[int, int] = {}
    commons: list[set[int]] = []
    for x, axes in axes_of.items():
        sizes.update((a, n) for a, n in zip(axes, x.dims, strict=True) if a is not None)
        if x.opcode is Opcode.DOT:
            found = [one for one in score_products(x) if axes[one.column] == columns]
            if not found:
                return None
            commons.append({a for a in axes[: found[0].batch] if a is not None})
    rows = [a for a in sizes if a != columns and not any(a in common for common in commons)]
    if not rows:
        return None
    longest = max(rows, key=lambda a: (sizes[a], a))
    count = {a: sum(a in common for common in commons) for a in sizes}
    others = sorted((a for a in sizes if a not in (longest, columns)), key=lambda a: (-count[a], a))
    if any(set(others[: len(common)]) != common for common in commons):
        return None
    return (*others, longest, columns)
