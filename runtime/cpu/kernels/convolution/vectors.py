"""Convolutions in vector registers: the choice of the blocks that are packed, and the record."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.convolution.convolution_axes import expanded
from runtime.cpu.kernels.convolution.ir.panel_ir import SPATIAL
from runtime.cpu.kernels.convolution.ir.vector_ir import FUNCTION, VectorRecord, vector_code
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import (
    ITEM,
    vector_micro_kernel,
)
from runtime.cpu.kernels.convolution.ir.vector_offsets_ir import POSITION, UNIT
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import NativeAction, native_call
from runtime.program.records.convolution import LeftLayout, VectorMicroKernel, VectorPlan
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension
from spmd.shape import PrimitiveType

#: Number of f32 elements of a cache line, to which parts of scratch are padded, and of a 64-bit word.
_LINE, _WORD = 16, 2


def vector_plan(
    window: Window, x: StridedView, w: StridedView, out: StridedView, *, channels_inside: bool
) -> VectorPlan | None:
    """Return the plan for vector registers, or None if another algorithm should compute the convolution.

    There is no plan on a machine with a tile unit or without wide vectors, for other types than f32, with base dilation
    (which phases compute), and for few features or channels and large packed blocks (for which BLAS is better).
    ``channels_inside`` tells that x is contiguous along its channels, and otherwise along its batch.
    """
    variant = vector_micro_kernel(out.dims[-1])
    views = x, w, out
    if (
        variant is None
        or has_tile_unit()
        or any(view.element_type is not PrimitiveType.F32 for view in views)
        or window.has_holes
        or window.rank > SPATIAL
    ):
        return None
    features = min(-(-out.dims[-1] // variant.columns) * variant.columns, tuning.MOST_FEATURES)
    depth = min(math.prod(w.dims[1:-1]), tuning.DEPTH)
    is_partial = out.dims[-1] < variant.lanes
    dense = out.strides[-1] == ITEM
    if not channels_inside:
        if not dense or out.dims[1] < tuning.LEAST_RUN:
            return None
        plan = _vector_plan(variant, LeftLayout.DEPTH, depth, features, 0)
    elif is_partial and depth < tuning.LEAST_PARTIAL_DEPTH:
        return None
    else:
        buffered = 0 if dense else tuning.BUFFERED // features
        plan = _vector_plan(variant, LeftLayout.ROWS, depth, features, buffered)
    numbers = sum(math.prod(view.dims) for view in views)
    return plan if plan.elements <= tuning.MOST_SHARE * numbers else None


def _vector_plan(
    variant: VectorMicroKernel, left: LeftLayout, depth: int, features: int, buffered: int
) -> VectorPlan:
    """Return the plan together with the size of the scratch that it needs."""
    plan = VectorPlan(variant, left, depth, features, buffered, 0)
    return replace(plan, elements=sum(_scratch_parts(plan)) + _LINE)


def _scratch_parts(plan: VectorPlan) -> tuple[int, ...]:
    """Return the sizes of the parts of scratch in f32 elements.

    They are the left operand, the packed w, positions, runs, a spare row, and the buffer.
    """
    tall = plan.micro_kernel.heights[0]
    return tuple(
        -(-size // _LINE) * _LINE
        for size in (
            max(tall * tuning.PITCH, plan.depth * plan.micro_kernel.lanes),
            plan.depth * plan.features,
            plan.depth * POSITION * _WORD,
            plan.depth * _WORD,
            plan.features,
            (plan.buffered + tall) * plan.features if plan.buffered else 0,
        )
    )


def vector_action(
    plan: VectorPlan, window: Window, arrays: tuple[NDArray, NDArray, NDArray], scratch: NDArray
) -> NativeAction:
    """Bind the convolution of x and w into out, the three ``arrays``, by ``plan``."""
    window, x, w, out = expanded(window, *arrays, SPATIAL)
    shape = _Shape(window.dims, x, w, out)
    make = shape.by_rows if plan.left is LeftLayout.ROWS else shape.by_depth
    fields = make(plan, scratch)
    record = fields.to_array()
    code = vector_code(plan.micro_kernel, plan.left)
    return native_call(code, FUNCTION, record, (*arrays, scratch))


#: Offset in x in bytes, indices of three spatial dimensions, and the offset in w or out in bytes.
_Position = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class _Shape:
    """Arrays x[g, n, 3 spatial, c], w[g, 3 of the window, c, f] and out[g, n, 3 spatial, f] of one convolution."""

    dims: tuple[WindowDimension, ...]
    x: NDArray
    w: NDArray
    out: NDArray

    def by_rows(self, plan: VectorPlan, scratch: NDArray) -> VectorRecord:
        """Return the record for x with contiguous channels: outer indices are the positions of the result."""
        x, out = self.x, self.out
        outer = [(out.shape[1], (x.strides[1], 0, 0, 0, out.strides[1]))]
        outer += [
            (out.shape[2 + d], self._moved(d, dim.stride, out.strides[2 + d]))
            for d, dim in enumerate(self.dims)
        ]
        if plan.buffered:
            outer.sort(key=lambda each: (each[0] > 1, -abs(each[1][-1])))
        units, blocks = self._units()
        total = math.prod(out.shape[1:-1])
        return self._record(
            plan,
            scratch,
            outer,
            0,
            units,
            blocks,
            block_outer=plan.buffered or total,
            run=0,
            row_bytes=plan.features * ITEM,
        )

    def by_depth(self, plan: VectorPlan, scratch: NDArray) -> VectorRecord:
        """Return the record for x with a contiguous batch: outer indices are those of the window and channels."""
        x, w, out = self.x, self.w, self.out
        outer, start = [(w.shape[-2], (x.strides[-1], 0, 0, 0, w.strides[-2]))], 0
        for d, dim in enumerate(self.dims):
            step = -w.strides[1 + d] if dim.reversal else w.strides[1 + d]
            start += (dim.size - 1) * w.strides[1 + d] if dim.reversal else 0
            outer.append((dim.size, self._moved(d, dim.window_dilation, step)))
        outer.sort(key=lambda each: (each[0] > 1, -abs(each[1][-1])))
        units: list[int] = []
        for output in itertools.product(*map(range, out.shape[2:-1])):
            position = [0] * POSITION
            for d, (o, dim) in enumerate(zip(output, self.dims, strict=True)):
                moved = self._moved(d, dim.stride, out.strides[2 + d])
                position = [p + o * s for p, s in zip(position, moved, strict=True)]
            units += [*position, *[0] * (UNIT - POSITION)]
        total = math.prod(w.shape[1:-1])
        return self._record(
            plan,
            scratch,
            outer,
            start,
            units,
            [],
            block_outer=-(-total // -(-total // tuning.DEPTH)),
            run=out.shape[1],
            row_bytes=out.strides[1],
        )

    def _moved(self, spatial: int, step: int, other: int) -> _Position:
        """Return the stride of ``step`` indices of x along dimension ``spatial``, and ``other`` bytes in w or out."""
        indices = [0] * SPATIAL
        indices[spatial] = step
        return (step * self.x.strides[2 + spatial], *indices, other)  # type: ignore[return-value]

    def _units(self) -> tuple[list[int], list[int]]:
        """Return the contiguous runs under a window, and the blocks of runs that are multiplied at a time."""
        x, w, channels = self.x, self.w, self.x.shape[-1]
        last = self.dims[-1]
        joined = last.window_dilation * x.strides[-2] == channels * ITEM
        taps = (
            min(tuning.DEPTH // channels, last.size) if joined and channels <= tuning.DEPTH else 1
        )
        taps = -(-last.size // -(-last.size // taps))
        length = -(-channels // -(-channels // tuning.DEPTH))
        units: list[int] = []
        blocks: list[list[int]] = []
        starts = [range(d.size) for d in self.dims[:-1]]
        for *outside, tap, channel in itertools.product(
            *starts, range(0, last.size, taps), range(0, channels, length)
        ):
            position = [channel * ITEM, 0, 0, 0, channel * w.strides[-2]]
            for d, (i, dim) in enumerate(zip((*outside, tap), self.dims, strict=True)):
                element = dim.size - 1 - i if dim.reversal else i
                moved = self._moved(d, dim.window_dilation, 0)
                position = [p + i * s for p, s in zip(position, moved, strict=True)]
                position[-1] += element * w.strides[1 + d]
            side = min(taps, last.size - tap)
            numbers = min(length, channels - channel)
            tap_bytes = -w.strides[-3] if last.reversal else w.strides[-3]
            depth = side * numbers
            if not blocks or blocks[-1][2] + depth > tuning.DEPTH:
                blocks.append([len(units) // (UNIT), 0, 0])
            blocks[-1][1] += 1
            blocks[-1][2] += depth
            units += [*position, side, numbers, tap_bytes, depth]
        return units, [word for block in blocks for word in block]

    def _record(
        self,
        plan: VectorPlan,
        scratch: NDArray,
        outer: list[tuple[int, _Position]],
        start_other: int,
        units: list[int],
        blocks: list[int],
        *,
        block_outer: int,
        run: int,
        row_bytes: int,
    ) -> VectorRecord:
        """Return the record. ``start_other`` is the first position's offset in w or out in bytes."""
        x, w, out = self.x, self.w, self.out
        low = [dim.padding_low for dim in self.dims]
        before = -sum(n * s for n, s in zip(low, x.strides[2:], strict=False))
        interior = [
            max(size - dim.dilated_size + 1, 0)
            for size, dim in zip(x.shape[2:-1], self.dims, strict=True)
        ]
        first = [before, *(-n for n in low), start_other]
        line = _LINE * ITEM
        begin = -(-scratch.ctypes.data // line) * line
        ends = list(
            itertools.accumulate((size * ITEM for size in _scratch_parts(plan)), initial=begin)
        )
        return VectorRecord(
            x=x.ctypes.data,
            w=w.ctypes.data,
            out=out.ctypes.data,
            left=ends[0],
            packed=ends[1],
            table=ends[2],
            met=ends[3],
            buffer=ends[5],
            spare=ends[4],
            features=out.shape[-1],
            block_features=plan.features,
            feature_bytes=w.strides[-1] if out.shape[-1] > 1 else ITEM,
            channel_bytes=w.strides[-2],
            out_feature_bytes=out.strides[-1],
            total=math.prod(size for size, _ in outer),
            size1=outer[1][0],
            size2=outer[2][0],
            size3=outer[3][0],
            high0=x.shape[2],
            high1=x.shape[3],
            high2=x.shape[4],
            interior0=interior[0],
            interior1=interior[1],
            interior2=interior[2],
            block_outer=block_outer,
            buffered=plan.buffered,
            run=run,
            row_bytes=row_bytes,
            instance_count=len(x),
            unit_count=len(units) // (UNIT),
            block_count=len(blocks) // 3,
            instances=tuple(
                g * step
                for g in range(len(x))
                for step in (x.strides[0], w.strides[0], out.strides[0])
            ),
            outer=(*first, *(word for _, position in outer for word in position)),
            units=tuple(units),
            blocks=tuple(blocks),
        )
