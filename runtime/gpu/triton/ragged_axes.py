"""Dimensions of a ragged product as axes that a kernel splits into blocks or iterates over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runtime.gpu.triton.memory import element_strides
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import RaggedDotAttrs
from spmd.ops.dot import free_dims, group_prefix

#: Largest size of a dimension that is split into blocks: indices are 32-bit integers.
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProductAxis:
    """Axis of ``size`` indices. lhs, rhs, groups, result: its strides in elements; 0 in arrays without it.

    ``groups`` is the stride in the array of group sizes.
    """

    size: int = 1
    lhs: int = 0
    rhs: int = 0
    groups: int = 0
    result: int = 0

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Strides in lhs, rhs, the group sizes and the result."""
        return self.lhs, self.rhs, self.groups, self.result


@dataclass(frozen=True, slots=True)
class RaggedAxes:
    """Axes of a ragged product of matrices [rows, depth] and [depth, columns].

    contracts: groups are runs of the depth, and each gives a matrix of the result; otherwise they are runs of rows.
    batch: axes of which a program has one index. steps: axes that are summed, besides the depth.
    """

    contracts: bool
    groups: ProductAxis
    rows: ProductAxis
    columns: ProductAxis
    depth: ProductAxis
    batch: tuple[ProductAxis, ...]
    steps: tuple[ProductAxis, ...]

    @property
    def ragged(self) -> ProductAxis:
        """Axis that is divided into groups."""
        return self.depth if self.contracts else self.rows

    @property
    def all(self) -> tuple[ProductAxis, ...]:
        """All axes."""
        return (self.groups, self.rows, self.columns, self.depth, *self.batch, *self.steps)


def ragged_axes(
    product: HloInstruction, operands: Sequence[StridedView], result: StridedView
) -> RaggedAxes:
    """Return the axes of the ragged-dot ``product`` on arrays of the given layouts.

    Adjacent dimensions become one axis if their strides allow it. Raises NoTritonKernelError if the ragged dimension is
    a batch dimension, or if strides are no multiples of an element.
    """
    attrs = product.attrs_as(RaggedDotAttrs)
    dot, (ragged,) = attrs.dot, attrs.lhs_ragged_dims
    if ragged in dot.lhs_batch:
        raise NoTritonKernelError("groups of a batch dimension")
    lhs, rhs, sizes = operands
    to_lhs, to_rhs, to_sizes, to_result = map(element_strides, (*operands, result))
    contracts = ragged in dot.lhs_contracting
    prefix = group_prefix(len(lhs.dims), attrs) if len(sizes.dims) > 1 else ()
    groups_of = {d: to_sizes[i] for i, d in enumerate(prefix)}
    position = int(contracts)

    def axis(left: int | None, right: int | None, *, is_summed: bool = False) -> ProductAxis:
        nonlocal position
        made = ProductAxis(
            rhs.dims[right or 0] if left is None else lhs.dims[left],
            0 if left is None else to_lhs[left],
            0 if right is None else to_rhs[right],
            0 if left is None else groups_of.get(left, 0),
            0 if is_summed else to_result[position],
        )
        position += not is_summed
        return made

    batch = [axis(i, j) for i, j in zip(dot.lhs_batch, dot.rhs_batch, strict=True)]
    rows = {d: axis(d, None) for d in free_dims(len(lhs.dims), dot.lhs_batch, dot.lhs_contracting)}
    taken = (dot.rhs_batch, dot.rhs_contracting, attrs.rhs_group_dims)
    columns = [axis(None, d) for d in free_dims(len(rhs.dims), *taken)]
    depth = {
        i: axis(i, j, is_summed=True)
        for i, j in zip(dot.lhs_contracting, dot.rhs_contracting, strict=True)
    }
    of_runs = rows.pop(ragged, None) or depth.pop(ragged)
    groups = ProductAxis(
        sizes.dims[-1],
        rhs=0 if contracts else to_rhs[attrs.rhs_group_dims[0]],
        groups=to_sizes[-1],
        result=to_result[0] if contracts else 0,
    )
    column, other_columns = _largest(columns)
    if contracts:
        row, other_rows = _largest(rows.values())
        main, steps = of_runs, _merged(depth.values())
    else:
        row, other_rows = of_runs, _merged(rows.values())
        main, steps = _largest(depth.values())
    if max(row.size, column.size, main.size) > _MOST:
        raise NoTritonKernelError("a dimension of more than 31 bits")
    others = (*batch, *other_rows, *other_columns)
    return RaggedAxes(contracts, groups, row, column, main, others, steps)


def _largest(axes: Iterable[ProductAxis]) -> tuple[ProductAxis, tuple[ProductAxis, ...]]:
    """Return the largest of ``axes`` after merging, and the others."""
    merged = list(_merged(axes))
    if not merged:
        return ProductAxis(), ()
    largest = max(range(len(merged)), key=lambda i: merged[i].size)
    return merged.pop(largest), tuple(merged)


def _merged(axes: Iterable[ProductAxis]) -> tuple[ProductAxis, ...]:
    """Return ``axes`` with adjacent ones merged if the merged one has constant strides in all arrays."""
    merged: list[ProductAxis] = []
    for axis in axes:
        outer = tuple(stride * axis.size for stride in axis.strides)
        if axis.size == 1:
            continue
        if merged and merged[-1].strides == outer:
            merged[-1] = replace(axis, size=merged[-1].size * axis.size)
        else:
            merged.append(axis)
    return tuple(merged)
