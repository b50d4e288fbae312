"""Source text of the Triton kernel of a ragged product: matrix products of groups whose sizes are in an array.

    lhs [m, k], rhs [g, k, n], sizes [g] -> [m, n]      groups are runs of rows
    lhs [k, m], rhs [m, n],    sizes [g] -> [g, k, n]   groups are runs of the summed dimension

Each program of the grid reads all group sizes and computes one block of the result, which lies in one group. So no
block is computed for two groups, none is added to memory, and the results do not depend on the order of programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.gpu.triton.axes import padded
from runtime.gpu.triton.elements import cast
from runtime.gpu.triton.kernel import TritonKernel, decoded, kernel_with_body
from runtime.gpu.triton.memory import needs_64_bits, scaled
from runtime.gpu.triton.products import TileProduct
from runtime.gpu.triton.ragged_axes import ProductAxis, RaggedAxes, ragged_axes
from runtime.gpu.triton.ragged_blocks import RaggedBlocks, ragged_blocks
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.ops.attrs import RaggedDotAttrs
from spmd.shape import PrimitiveType

#: Adjacent blocks of columns that consecutive programs compute for the same rows, so that the cache holds both factors.
_STRIP = 8
#: Position of the strides of each array in ``ProductAxis.strides``.
_LHS, _RHS, _SIZES, _RESULT = range(4)


def ragged_kernel(
    product: HloInstruction,
    operands: Sequence[StridedView],
    result: StridedView,
    *,
    tf32: bool = True,
) -> TritonKernel:
    """Return the kernel of the ragged-dot ``product`` on arrays of the given layouts.

    The offsets of the views are relative to aligned addresses. tf32: products of f32 may round their operands to TF32
    if the program allows it. Raises NoTritonKernelError if there is no kernel.
    """
    axes = ragged_axes(product, operands, result)
    kinds = [view.element_type for view in operands[:2]]
    dot = TileProduct.of(kinds, product.attrs_as(RaggedDotAttrs).dot, tf32=tf32)
    blocks = ragged_blocks(axes, dot, operands[:2])
    source = _Source(axes, blocks, dot, kinds, result.element_type)
    return kernel_with_body(
        "ragged_dot",
        source.lines(),
        operands,
        [result],
        programs=source.num_programs,
        warps=blocks.warps,
        stages=blocks.stages,
    )


class _Source:
    """Writer of the lines of a kernel."""

    def __init__(
        self,
        axes: RaggedAxes,
        blocks: RaggedBlocks,
        dot: TileProduct,
        kinds: Sequence[PrimitiveType],
        result: PrimitiveType,
    ) -> None:
        self._axes, self._blocks, self._dot = axes, blocks, dot
        self._kinds, self._result = kinds, result
        self._row_blocks = -(-axes.rows.size // blocks.rows)
        if not axes.contracts:
            # Each group, and the rows after the last one, may end with a block that is not full.
            self._row_blocks = axes.rows.size // blocks.rows + min(
                axes.groups.size + 1, axes.rows.size
            )
        self._column_blocks = -(-axes.columns.size // blocks.columns)
        self._wide = [
            needs_64_bits((axis.size, axis.strides[array]) for axis in axes.all)
            for array in range(4)
        ]
        self._batch = [(f"b{i}", axis) for i, axis in enumerate(axes.batch)]
        self._group = ("group", axes.groups)
        #: Axes of which a program has one index that its number gives.
        self._numbered = [self._group, *self._batch] if axes.contracts else self._batch
        self._steps = [(f"s{i}", axis) for i, axis in enumerate(axes.steps)]

    @property
    def num_programs(self) -> int:
        """Size of the grid."""
        batches = math.prod(axis.size for _, axis in self._numbered)
        return batches * self._row_blocks * self._column_blocks

    def lines(self) -> list[str]:
        """Return the lines of the kernel function."""
        axes, blocks = self._axes, self._blocks
        steps = math.prod(axis.size for axis in axes.steps)
        loop = [*self._loop_of_step()]
        if self._steps:
            names = [(name, axis.size) for name, axis in self._steps]
            loop = [f"for step in range(0, {steps}):", *_indented(decoded("step", names) + loop)]
        if axes.contracts:
            before = [f"rows = row_block * {blocks.rows} + tl.arange(0, {blocks.rows})"]
            before.append(f"row_inside = rows < {axes.rows.size}")
        else:
            before = [*self._runs(), *self._rows_of_group()]
        value = cast("acc", PrimitiveType.F32, self._result)
        target = self._pointers(
            "r0", _RESULT, ("rows[:, None]", "columns[None, :]"), self._numbered
        )
        return [
            *self._block_numbers(),
            f"columns = column_block * {blocks.columns} + tl.arange(0, {blocks.columns})",
            f"column_inside = columns < {axes.columns.size}",
            *before,
            f"depth = tl.arange(0, {blocks.depth})",
            f"acc = tl.zeros([{blocks.rows}, {blocks.columns}], tl.float32)",
            *loop,
            f"tl.store({target}, {value}, mask=row_inside[:, None] & column_inside[None, :])",
        ]

    def _block_numbers(self) -> list[str]:
        """Return the lines that assign the numbers of the program's blocks, and its indices along batch axes."""
        tiles = self._row_blocks * self._column_blocks
        strip = min(_STRIP, self._column_blocks)
        return [
            "program = tl.program_id(0)",
            *decoded(f"program // {tiles}", [(name, axis.size) for name, axis in self._numbered]),
            f"tile = program % {tiles}",
            f"first_column = tile // {self._row_blocks * strip} * {strip}",
            f"within = tile % {self._row_blocks * strip}",
            f"strip = tl.minimum({self._column_blocks} - first_column, {strip})",
            "row_block = within // strip",
            "column_block = first_column + within % strip",
        ]

    def _runs(self) -> list[str]:
        """Return the lines that assign vectors: the first index of each group, and the one after its last."""
        axes, count = self._axes, self._axes.groups.size
        more = [*self._batch, *self._steps] if axes.contracts else self._batch
        pointers = self._pointers("p2", _SIZES, (), more)
        step = scaled("groups", axes.groups.groups, self._wide[_SIZES])
        size = axes.ragged.size
        return [
            f"groups = tl.arange(0, {padded(count + 1)})",
            f"sizes = tl.load({pointers} + {step}, mask=groups < {count}, other=0).to(tl.int64)",
            f"sizes = tl.minimum(tl.maximum(sizes, 0), {size})",
            "total = tl.cumsum(sizes, 0)",
            f"ends = tl.minimum(total, {size}).to(tl.int32)",
            f"starts = tl.minimum(total - sizes, {size}).to(tl.int32)",
        ]

    def _rows_of_group(self) -> list[str]:
        """Return the lines that assign the program's group and rows.

        The rows after the last group are one more group, whose rows are 0. A program beyond the last block has no rows.
        """
        rows, count = self._blocks.rows, self._axes.groups.size
        return [
            f"ends = tl.where(groups == {count}, {self._axes.rows.size}, ends)",
            f"group_blocks = (ends - starts + {rows - 1}) // {rows}",
            "last_block = tl.cumsum(group_blocks, 0)",
            "before = row_block - (last_block - group_blocks)",
            "is_own = (before >= 0) & (before < group_blocks)",
            "group = tl.sum(tl.where(is_own, groups, 0), 0)",
            f"first = tl.sum(tl.where(is_own, starts + before * {rows}, 0), 0)",
            "end = tl.sum(tl.where(is_own, ends, 0), 0)",
            f"rows = first + tl.arange(0, {rows})",
            "row_inside = rows < end",
        ]

    def _loop_of_step(self) -> list[str]:
        """Return the lines that add the products of the depth's blocks to ``acc``."""
        axes, blocks = self._axes, self._blocks
        size, length = axes.depth.size, blocks.depth
        masks = ["row_inside[:, None]", "column_inside[None, :]"]
        depths = ["inside[None, :]", "inside[:, None]"]
        if axes.contracts:
            bounds = [
                *self._runs(),
                "start = tl.sum(tl.where(groups == group, starts, 0), 0)",
                "stop = tl.sum(tl.where(groups == group, ends, 0), 0)",
            ]
        else:
            # Neither rows after the last group nor a program without rows have a product.
            is_product = f"(group < {axes.groups.size}) & (first < end)"
            bounds = ["start = 0", f"stop = tl.where({is_product}, {size}, 0)"]
        inside = []
        if axes.contracts or size % length:
            inside = ["inside = k + depth < stop"]
            masks = [f"{mask} & {depth}" for mask, depth in zip(masks, depths, strict=True)]
        own = [self._group, *self._batch, *self._steps]
        left = self._pointers("p0", _LHS, ("rows[:, None]", "depth[None, :]"), own)
        right = self._pointers("p1", _RHS, ("columns[None, :]", "depth[:, None]"), own)
        moves = [
            scaled("k", axes.depth.strides[array], self._wide[array]) for array in (_LHS, _RHS)
        ]
        factors = zip(("a", "b"), self._kinds, strict=True)
        return [
            *bounds,
            f"left = {left}",
            f"right = {right}",
            f"for k in range(start, stop, {length}):",
            *_indented(
                [
                    *inside,
                    f"a = tl.load(left + {moves[0]}, mask={masks[0]}, other=0)",
                    f"b = tl.load(right + {moves[1]}, mask={masks[1]}, other=0)",
                    f"acc = {self._dot.text(*factors, acc='acc')}",
                ]
            ),
        ]

    def _pointers(
        self,
        pointer: str,
        array: int,
        vectors: Sequence[str],
        indices: Sequence[tuple[str, ProductAxis]],
    ) -> str:
        """Return the pointers to elements of ``array``, for scalar ``indices`` and vectors of two axes of a block."""
        named = {
            "rows": self._axes.rows,
            "columns": self._axes.columns,
            "depth": self._axes.depth,
        }
        steps = [*indices, *((vector, named[vector.partition("[")[0]]) for vector in vectors)]
        terms = [
            scaled(name, axis.strides[array], self._wide[array])
            for name, axis in steps
            if axis.strides[array] or name in vectors
        ]
        return " + ".join([pointer, *terms])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
