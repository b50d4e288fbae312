"""Reduce-window in native code: prefix scans, and windows of any kind."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.native_call import NOTHING, NativeAction, in_order, native_call
from runtime.cpu.kernels.reduce import scan_ir, window_ir
from runtime.cpu.kernels.reduce.scan_ir import ScanDimension, ScanRecord, ScanVariant, scan_code
from runtime.cpu.kernels.reduce.window_ir import (
    WindowAxis,
    WindowRecord,
    WindowVariant,
    window_code,
)
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.reduce import ReduceWindowKernel
from runtime.program.scalar_program import ScalarProgram
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


@CPU_KERNELS.binds(ReduceWindowKernel)
def bind_reduce_window(kernel: ReduceWindowKernel, arrays: KernelArrays) -> Action:
    """Bind the reduce-window as native calls.

    A known reduction of complex numbers, which is a sum, reduces real and imaginary parts by two calls.
    """
    source, init = arrays.operands
    (result,) = arrays.results
    if result.size == 0:
        return NOTHING
    if source.size == 0 or any(dim.size == 0 for dim in kernel.window.dims):
        return copying(init, result)
    if result.dtype.kind == "c" and not isinstance(kernel.reduction, ScalarProgram):
        return in_order(
            _binding(kernel, source.real, init.real, result.real),
            _binding(kernel, source.imag, init.imag, result.imag),
        )
    return _binding(kernel, source, init, result)


def _binding(
    kernel: ReduceWindowKernel, source: NDArray, init: NDArray, result: NDArray
) -> NativeAction:
    """Return the native call of the reduce-window. Neither results nor windows are empty.

    Complex elements must have been split into parts, unless the reducer is a program.
    """
    axes = [
        WindowAxis(
            windows,
            base,
            dim.size,
            dim.stride,
            dim.window_dilation,
            dim.padding_low,
            dim.base_dilation,
            *strides,
        )
        for windows, base, dim, *strides in zip(
            result.shape,
            source.shape,
            kernel.window.dims,
            source.strides,
            result.strides,
            strict=True,
        )
    ]
    sliding = [axis for axis in axes if not _is_plain(axis)]
    if len(sliding) == 1 and _is_running(sliding[0]):
        return _scan(kernel, axes, sliding[0], (source, init, result))
    return _windows(kernel, axes, (source, init, result))


def _is_plain(axis: WindowAxis) -> bool:
    """Return whether window w consists of element w alone, for all windows."""
    unmoved = axis.step == axis.base_dilation == 1 and axis.padding == 0
    return bool(axis.size == 1 and unmoved and axis.windows <= axis.base)


def _is_running(axis: WindowAxis) -> bool:
    """Return whether window w covers all elements up to w, or all from w on, which makes it a prefix scan."""
    is_full = axis.size == axis.base == axis.windows
    dense = axis.step == axis.base_dilation == axis.dilation == 1
    return is_full and dense and axis.padding in (0, axis.size - 1)


def _with_neighbours(
    inner: WindowAxis, axes: list[WindowAxis]
) -> tuple[WindowAxis, list[WindowAxis]]:
    """Return ``inner`` and the other axes, after joining the windows of another axis to ``inner`` if memory allows.

    ``inner`` must be plain, and the other axis must have neither padding nor base dilation. The windows of ``inner`` at
    consecutive windows of the other axis must follow one another in source and target, as in [columns, channels]. The
    joined axis counts them all. The other axis keeps one window, whose elements are accumulated for all of them.
    """
    for axis in axes if _is_plain(inner) else ():
        ends_within = (axis.windows - 1) * axis.step + (axis.size - 1) * axis.dilation < axis.base
        lies_behind = (axis.step * axis.source_stride, axis.target_stride) == (
            inner.windows * inner.source_stride,
            inner.windows * inner.target_stride,
        )
        if axis.padding == 0 and axis.base_dilation == 1 and ends_within and lies_behind:
            count = inner.windows * axis.windows
            strides = (inner.source_stride, inner.target_stride)
            joined = WindowAxis(count, count, 1, 1, 1, 0, 1, *strides)
            window = axis.with_fields(windows=1, step=1)
            return joined, [window if one is axis else one for one in axes]
    return inner, axes


def _scan(
    kernel: ReduceWindowKernel,
    axes: Sequence[WindowAxis],
    along: WindowAxis,
    arrays: tuple[NDArray, NDArray, NDArray],
) -> NativeAction:
    """Bind the scan along axis ``along`` of source, init and result, the three ``arrays``."""
    source, init, result = arrays
    item, kind = result.itemsize, PrimitiveType.from_numpy(result.dtype)
    others = _in_target_order([axis for axis in axes if axis is not along])
    inner = others[-1:] if abs(along.target_stride) != item else []
    side_by_side = bool(inner) and inner[0].target_stride == item and inner[0].windows > 1
    if isinstance(kernel.reduction, ScalarProgram):
        others = others or [WindowAxis(1, 1, 1, 1, 1, 0, 1, item, item)]
        inner, side_by_side = others[-1:], True
    outer = others[:-1] if side_by_side else others
    ways = [(axis.windows, axis.source_stride, axis.target_stride) for axis in outer]
    starts = [source.ctypes.data, result.ctypes.data]
    step, target_step = along.source_stride, along.target_stride
    if along.padding == 0:  # from the end
        starts = [starts[0] + (along.size - 1) * step, starts[1] + (along.size - 1) * target_step]
        step, target_step = -step, -target_step
    ways.append((along.size, step, target_step))
    if side_by_side:
        ways.append((inner[0].windows, inner[0].source_stride, inner[0].target_stride))
    packed = (ways[-1][1] == item, ways[-1][2] == item)
    backwards = isinstance(kernel.reduction, ScalarProgram) and along.padding == 0
    variant = ScanVariant(kind, kernel.reduction, len(outer), side_by_side, packed, backwards)
    dimensions = [ScanDimension(*way) for way in ways]
    record = ScanRecord(starts[0], init.ctypes.data, starts[1], dimensions)
    return native_call(scan_code(variant), scan_ir.FUNCTION, record.to_array(), arrays)


def _windows(
    kernel: ReduceWindowKernel,
    axes: Sequence[WindowAxis],
    arrays: tuple[NDArray, NDArray, NDArray],
) -> NativeAction:
    """Bind the windows along ``axes`` of source, init and result, the three ``arrays``."""
    source, init, result = arrays
    item, kind = result.itemsize, PrimitiveType.from_numpy(result.dtype)
    one = WindowAxis(1, 1, 1, 1, 1, 0, 1, item, item)
    candidates = [axis for axis in axes if axis.base_dilation == 1 and axis.windows > 1] or [one]

    def suits(axis: WindowAxis) -> tuple[bool, bool, bool, int]:
        """Return a rank: contiguous in the result, one element per window, contiguous in the source, size."""
        neighbours = axis.step * axis.source_stride == item
        return axis.target_stride == item, _is_plain(axis), neighbours, axis.windows

    inner = max(candidates, key=suits)
    inner, rest = _with_neighbours(inner, [axis for axis in axes if axis is not inner])
    outer = _in_target_order(rest)
    variant = WindowVariant(
        kind,
        kernel.reduction,
        len(outer) + 1,
        not _is_plain(inner),
        any(axis.base_dilation > 1 for axis in axes),
        (inner.step * inner.source_stride == item, inner.target_stride == item),
    )
    record = WindowRecord(source.ctypes.data, init.ctypes.data, result.ctypes.data, [*outer, inner])
    return native_call(window_code(variant), window_ir.FUNCTION, record.to_array(), arrays)


def _in_target_order(axes: Sequence[WindowAxis]) -> list[WindowAxis]:
    """Sort ``axes`` by target stride, largest first, merge plain ones where strides allow, and drop those of size 1."""
    merged: list[WindowAxis] = []
    for axis in sorted(axes, key=lambda axis: -abs(axis.target_stride)):
        if _is_plain(axis) and axis.windows == 1:
            continue
        before = merged[-1] if merged else None
        if (
            before is not None
            and _is_plain(before)
            and _is_plain(axis)
            and axis.windows == axis.base
            and before.source_stride == axis.windows * axis.source_stride
            and before.target_stride == axis.windows * axis.target_stride
        ):
            count = before.windows * axis.windows
            merged[-1] = axis.with_fields(windows=count, base=count)
        else:
            merged.append(axis)
    return merged
