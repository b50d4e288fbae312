"""Convolutions as matrix products of panels of the patch matrix, by BLAS, the tile unit or vector registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from runtime.cpu.kernels.convert import computed_in
from runtime.cpu.kernels.convolution.convolution_axes import coordinate_tables, expanded
from runtime.cpu.kernels.convolution.ir.panel_ir import (
    FUNCTION,
    SPATIAL,
    OuterDimension,
    PanelRecord,
    PatchPosition,
    convolution_code,
)
from runtime.cpu.kernels.convolution.ir.tile_gradient_ir import FUNCTION as CONVOLVE_GRADIENT
from runtime.cpu.kernels.convolution.ir.tile_gradient_ir import GradientRecord, gradient_code
from runtime.cpu.kernels.convolution.ir.tile_image_ir import FUNCTION as CONVOLVE_IMAGE
from runtime.cpu.kernels.convolution.ir.tile_image_ir import ImageRecord, image_code
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import vector_micro_kernel
from runtime.cpu.kernels.convolution.tile_gradient import gradient_record
from runtime.cpu.kernels.convolution.tile_gradient_geometry import gradient_geometry
from runtime.cpu.kernels.convolution.tile_image import image_record
from runtime.cpu.kernels.convolution.tile_image_geometry import geometry
from runtime.cpu.kernels.convolution.vectors import vector_action
from runtime.cpu.kernels.gemm.tile_unit import has_tile_unit
from runtime.cpu.kernels.native_call import NativeAction, native_call
from runtime.cpu.libraries.blas import (
    COLUMN_MAJOR,
    NO_TRANSPOSE,
    ROW_MAJOR,
    TRANSPOSE,
    gemm_function,
)
from runtime.program.argument_record import word_index
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.convolution import (
    GradientTiles,
    ImageTiles,
    PanelConvolutionKernel,
    VectorPlan,
)
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.ops.window import Window


def plan_here(
    kernel: PanelConvolutionKernel,
) -> ImageTiles | GradientTiles | VectorPlan | None:
    """Return the plan of ``kernel`` that this processor follows, or None if it multiplies panels by BLAS."""
    if kernel.tiles is not None and has_tile_unit():
        return kernel.tiles
    plan = kernel.vectors
    if plan is None or plan.micro_kernel != vector_micro_kernel(plan.features):
        return None
    return plan


@CPU_KERNELS.binds(PanelConvolutionKernel)
def bind_panel_convolution(kernel: PanelConvolutionKernel, arrays: KernelArrays) -> Action:
    """Bind the convolution by ``plan_here``, between conversions of arrays of other types through scratch."""
    panel, *spare = arrays.scratch
    plan = plan_here(kernel)

    def convolve(x: NDArray, w: NDArray, out: NDArray) -> Action:
        if isinstance(plan, VectorPlan):
            return vector_action(plan, kernel.window, (x, w, out), panel)
        by_panels = _by_panels(kernel, x, w, out, panel)
        return by_panels if plan is None else _by_tiles(kernel, plan, (x, w, out), panel, by_panels)

    return computed_in(kernel.element_type, arrays, spare, convolve)


def _by_panels(
    kernel: PanelConvolutionKernel, x: NDArray, w: NDArray, out: NDArray, panel: NDArray
) -> NativeAction:
    """Bind the convolution as products of panels by BLAS."""
    gemm = gemm_function(kernel.element_type)
    assert gemm is not None, "the lowering asked for it"
    record = _record(kernel, x, w, out, panel).to_array()
    code = convolution_code(kernel.element_type, gemm)
    return native_call(code, FUNCTION, record, (x, w, out, panel))


def _by_tiles(
    kernel: PanelConvolutionKernel,
    tiles: ImageTiles | GradientTiles,
    arrays: tuple[NDArray, NDArray, NDArray],
    scratch: NDArray,
    by_panels: NativeAction,
) -> NativeAction:
    """Bind the convolution on the tile unit, with panels as the fallback for numbers out of the unit's range."""
    x, w, out = arrays
    (call,) = by_panels.calls
    planar = expanded(kernel.window, x, w, out, 2)[1:]
    record: ImageRecord | GradientRecord
    tables: Sequence[NDArray] = ()
    if isinstance(tiles, ImageTiles):
        shape = geometry(kernel.window, x.shape, out.shape)
        assert shape is not None, "the lowering asked for it"
        record, tables = image_record(tiles, shape, planar, scratch, call.record)
        code, function = image_code(), CONVOLVE_IMAGE
    else:
        sparse = gradient_geometry(kernel.window, x.shape, out.shape)
        assert sparse is not None, "the lowering asked for it"
        sparse = replace(sparse, group_pairs=tiles.interleaved_pairs)
        record = gradient_record(tiles, sparse, planar, scratch, call.record)
        code, function = gradient_code(), CONVOLVE_GRADIENT
    (made,) = native_call(code, function, record.to_array(), (*arrays, scratch, *tables)).calls
    fallback = made.record + 8 * word_index(type(record), "otherwise")
    return NativeAction([replace(made, callees=((fallback, call),))])


#: Offset in the input in bytes, and three padded coordinates.
_Position = tuple[int, int, int, int]


@dataclass(frozen=True)
class _PositionStrides:
    """Strides of positions along the dimensions of the result and of w, which have the canonical layout."""

    window: Window
    x: NDArray

    def of_result(self, dimension: int) -> _Position:
        """Return the stride along ``dimension`` of the result, its batch or a spatial one."""
        if dimension < 2:
            return (self.x.strides[dimension], 0, 0, 0)
        return self._coordinate(dimension - 2, self.window.dims[dimension - 2].stride)

    def of_w(self, dimension: int) -> _Position:
        """Return the stride along ``dimension`` of w, a spatial one or the channels."""
        if dimension > self.window.rank:
            return (self.x.strides[-1], 0, 0, 0)
        dim = self.window.dims[dimension - 1]
        step = -dim.window_dilation if dim.reversal else dim.window_dilation
        return self._coordinate(dimension - 1, step)

    def start(self) -> _Position:
        """Return the position of window element 0 for the first output."""
        start = (0, 0, 0, 0)
        for i, dim in enumerate(self.window.dims):
            if dim.reversal:
                start = _moved(start, self._coordinate(i, dim.window_dilation), dim.size - 1)
        return start

    def _coordinate(self, spatial: int, step: int) -> _Position:
        """Return the stride of ``step`` coordinates along dimension ``spatial``."""
        coordinates = [0] * SPATIAL
        coordinates[SPATIAL - self.window.rank + spatial] = step
        return (0, *coordinates)  # type: ignore[return-value]


def _record(
    kernel: PanelConvolutionKernel, x: NDArray, w: NDArray, out: NDArray, panel: NDArray
) -> PanelRecord:
    """Return the record of the convolution."""
    position_strides = _PositionStrides(kernel.window, x)
    rows = [(out.shape[d], position_strides.of_result(d)) for d in kernel.rows]
    depth = [(w.shape[d], position_strides.of_w(d)) for d in kernel.depth]
    inner, outer = (depth, rows) if kernel.depth_inside else (rows, depth)
    tables, start = coordinate_tables(kernel.window, x, out.shape[2:-1], w.shape[1:-2])
    w_matrix, out_matrix = _Matrix(w, kernel.depth), _Matrix(out, kernel.rows)
    by_row = out_matrix.by_row
    every = [(1, (0, 0, 0, 0))] * (SPATIAL + 1 - len(outer)) + list(outer)
    runs, instances = _positions(inner[:-1]), _instances(kernel, position_strides, w, out)
    all_tables = ((0,),) * (SPATIAL - len(tables)) + tables
    return PanelRecord(
        x=x.ctypes.data + start,
        w=w.ctypes.data,
        out=out.ctypes.data,
        panel=panel.ctypes.data,
        inner_is_depth=kernel.depth_inside,
        columns=out.shape[-1],
        order=ROW_MAJOR if by_row else COLUMN_MAJOR,
        transpose_panel=NO_TRANSPOSE if kernel.depth_inside is by_row else TRANSPOSE,
        transpose_w=NO_TRANSPOSE if w_matrix.by_row is by_row else TRANSPOSE,
        ldb=w_matrix.leading_dimension,
        ldc=out_matrix.leading_dimension,
        depth_stride_w=w_matrix.row_stride,
        row_stride_out=out_matrix.row_stride,
        total=math.prod(size for size, _ in outer),
        outer_per_block=kernel.outer_per_block,
        run_count=len(runs),
        run_length=kernel.run_length,
        runs_per_block=kernel.runs_per_block,
        instance_count=len(instances),
        outer=[OuterDimension(size, PatchPosition(step[0], step[1:])) for size, step in every],
        instances=instances,
        runs=runs,
        table0=all_tables[0],
        table1=all_tables[1],
        table2=all_tables[2],
    )


@dataclass(frozen=True)
class _Matrix:
    """Matrix operand of BLAS. Its rows are the dimensions ``rows`` of ``array``, its columns the last dimension."""

    array: NDArray
    rows: tuple[int, ...]

    @property
    def by_row(self) -> bool:
        """Return whether the matrix is row-major. Otherwise it is column-major."""
        return self.array.shape[-1] == 1 or self.array.strides[-1] == self.array.itemsize

    @property
    def row_stride(self) -> int:
        """Return the stride between rows in bytes."""
        strides = [self.array.strides[d] for d in self.rows if self.array.shape[d] > 1]
        return int(strides[-1]) if strides else 0

    @property
    def leading_dimension(self) -> int:
        """Return the leading dimension in elements. A single row or column counts with its length."""
        height = math.prod(self.array.shape[d] for d in self.rows)
        across = self.row_stride if self.by_row else self.array.strides[-1]
        return int(
            max(across // self.array.itemsize, self.array.shape[-1] if self.by_row else height)
        )


def _positions(
    dimensions: Sequence[tuple[int, _Position]], start: _Position = (0, 0, 0, 0)
) -> list[_Position]:
    """Return the position of every index of ``dimensions``, pairs of a size and a stride; the last is fastest."""
    positions = [start]
    for size, step in dimensions:
        positions = [_moved(position, step, i) for position in positions for i in range(size)]
    return positions


def _moved(position: _Position, step: _Position, count: int) -> _Position:
    """Return ``position`` moved by ``count`` times ``step``."""
    a, b, c, d = (p + s * count for p, s in zip(position, step, strict=True))
    return (a, b, c, d)


def _instances(
    kernel: PanelConvolutionKernel, position_strides: _PositionStrides, w: NDArray, out: NDArray
) -> list[tuple[int, int, int, int, int, int]]:
    """Return the independent products: the position in x, and the offsets in w and in the result in bytes."""
    others = [d for d in range(out.ndim - 1) if d not in kernel.rows]
    positions = _positions(
        [(out.shape[d], position_strides.of_result(d)) for d in others], position_strides.start()
    )
    indices = itertools.product(*(range(out.shape[d]) for d in others))
    return [
        (
            *position,
            sum(i * w.strides[0] for i, d in zip(index, others, strict=True) if d == 0),
            sum(i * out.strides[d] for i, d in zip(index, others, strict=True)),
        )
        for position, index in zip(positions, indices, strict=True)
    ]
