"""Region with reductions: which of its values are per row, and which pass over a row computes each value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from runtime.fusion.element_graph import post_order
from runtime.fusion.element_operations import array_shape
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import view_op
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.opdef import OPS
from spmd.ops.reduction import reduction_kind


@dataclass(frozen=True)
class RowRegion:
    """Instructions between ``operands`` and ``roots``, whose reductions all reduce the dimensions ``axes`` of ``dims``.

    ``order`` lists the operands and instructions, operands first. ``levels`` gives for each value the number of passes
    that must be complete before it can be computed; a reduction's level includes the pass that accumulates it.
    """

    roots: tuple[HloInstruction, ...]
    operands: Mapping[HloInstruction, int]
    order: tuple[HloInstruction, ...]
    reduces: tuple[HloInstruction, ...]
    dims: tuple[int, ...]
    axes: tuple[int, ...]
    levels: Mapping[HloInstruction, int]

    @cached_property
    def points(self) -> int:
        """Return the number of indices of the reduced arrays."""
        return math.prod(self.dims)

    @cached_property
    def row_count(self) -> int:
        """Return the number of rows, each of which is reduced to one element."""
        return math.prod(self.rows)

    @cached_property
    def row_length(self) -> int:
        """Return the number of elements per row."""
        return math.prod(self.dims[d] for d in self.axes)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Return the sizes of the dimensions that are not reduced."""
        return tuple(n for d, n in enumerate(self.dims) if d not in self.axes)

    def is_inside(self, x: HloInstruction) -> bool:
        """Return whether the region computes ``x``."""
        return x in self.levels and x not in self.operands

    def is_per_row(self, x: HloInstruction) -> bool:
        """Return whether ``x`` depends on a reduction and has one element per row."""
        return self.levels[x] > 0 and array_shape(x).num_elements == self.row_count

    def is_row_result(self, root: HloInstruction) -> bool:
        """Return whether ``root`` has one element per row, not one per index. Raises NoEmitterError if neither."""
        count = array_shape(root).num_elements
        if count not in (self.points, self.row_count):
            raise NoEmitterError(f"{root.name} has other indices than the reductions")
        return count == self.row_count

    @cached_property
    def row_values(self) -> tuple[HloInstruction, ...]:
        """Return the values with one element per row that are broadcast and used at all indices."""
        return tuple([x for x in self.order if self.is_inside(x) and self._is_spread(x)])

    def _is_spread(self, x: HloInstruction) -> bool:
        """Return whether ``x`` is computed once per row and used at all indices."""
        return self.is_per_row(x) and any(
            self.is_inside(user) and not self.is_per_row(user) for user in x.users
        )

    def worth_keeping(self) -> list[HloInstruction]:
        """Return the values at all indices that are costly to compute and that a later pass needs again.

        Values are costly if they need transcendental functions.
        """
        if len(self.pass_roots) == 1:
            return []
        ends = {*self.operands, *self.row_values, *self.reduces}
        costly: set[HloInstruction] = set()
        for x in self.order:
            if x not in ends and (any(y in costly for y in x.operands) or _is_costly(x)):
                costly.add(x)
        found: set[HloInstruction] = set()
        for level, starts in self.pass_roots.items():
            stack = list(starts)
            while stack:
                x = stack.pop()
                if x not in costly:
                    continue  # and no value that it needs is costly
                computes = view_op(x) is None and array_shape(x).dims == self.dims
                if computes and self.levels[x] < level:
                    found.add(x)
                else:
                    stack.extend(x.operands)
        return [x for x in self.order if x in found]

    @cached_property
    def pass_roots(self) -> Mapping[int, Sequence[HloInstruction]]:
        """Return, by pass, the operands of reductions and the results that the pass computes at all indices."""
        found: dict[int, list[HloInstruction]] = {}
        for reduce in self.reduces:
            found.setdefault(self.levels[reduce] - 1, []).append(reduce.operand(0))
        for root in self.roots:
            if not self.is_row_result(root):
                found.setdefault(self.levels[root], []).append(root)
        return found


def row_region(
    roots: Sequence[HloInstruction], operands: Mapping[HloInstruction, int]
) -> RowRegion:
    """Return the region between ``operands`` and ``roots``, which must contain a reduction.

    Raises NoEmitterError unless all reductions are plain and reduce the same dimensions of equal sizes, and each root
    has one element per index or per row.
    """
    order = post_order(roots, operands)
    reduces = [x for x in order if x.opcode is Opcode.REDUCE and x not in operands]
    dims, axes = array_shape(reduces[0].operand(0)).dims, _axes(reduces[0])
    for reduce in reduces:
        _require_reduction(reduce, dims, axes)
    levels: dict[HloInstruction, int] = dict.fromkeys(operands, 0)
    for x in order:
        if x not in operands:
            below = max([levels[y] for y in x.operands], default=0)
            levels[x] = below + (x.opcode is Opcode.REDUCE)
    region = RowRegion(tuple(roots), operands, tuple(order), tuple(reduces), dims, axes, levels)
    for root in roots:
        region.is_row_result(root)
    return region


def have_common_rows(regions: Sequence[RowRegion | None], roots: Sequence[HloInstruction]) -> bool:
    """Return whether one region may compute the reductions of all ``regions`` and the ``roots``, by their sizes."""
    first = regions[0]
    return first is not None and all(
        each is not None
        and (each.dims, each.axes) == (first.dims, first.axes)
        and all(root.array_shape.num_elements in (first.points, first.row_count) for root in roots)
        for each in regions
    )


def _require_reduction(
    reduce: HloInstruction, dims: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    """Raise NoEmitterError unless ``reduce`` is a plain reduction along ``axes`` of an array of sizes ``dims``."""
    if reduce.num_operands != 2 or reduction_kind(reduce.to_apply) is None:
        raise NoEmitterError(f"{reduce.name} combines elements in its own way")
    if array_shape(reduce.operand(0)).dims != dims or _axes(reduce) != axes:
        raise NoEmitterError(f"{reduce.name} reduces other dimensions than the first reduction")
    array_shape(reduce)
    if math.prod(n for d, n in enumerate(dims) if d not in axes) == math.prod(dims):
        raise NoEmitterError(f"{reduce.name} reduces nothing")


def _is_costly(x: HloInstruction) -> bool:
    """Return whether ``x`` needs transcendental functions."""
    return OPS[x.opcode].elementwise and OPS[x.opcode].cost(x).transcendentals > 0


def _axes(reduce: HloInstruction) -> tuple[int, ...]:
    """Return the reduced dimensions in ascending order."""
    return tuple(sorted(reduce.attrs_as(DimensionsAttrs).dimensions))
