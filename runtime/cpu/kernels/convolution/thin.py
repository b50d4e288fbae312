"""Convolutions with few output features, in which vectors of adjacent input channels are multiplied."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from runtime.cpu.kernels.convolution.convolution_axes import coordinate_tables, expanded
from runtime.cpu.kernels.convolution.ir.panel_ir import SPATIAL
from runtime.cpu.kernels.convolution.ir.thin_ir import (
    FUNCTION,
    PhaseRecord,
    ThinRecord,
    thin_code,
)
from runtime.cpu.kernels.native_call import NativeAction, native_call
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.ops.window import Window, WindowDimension
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class ThinPart:
    """Convolution of a common input x by ``w`` into ``out``.

        out[g, n, o.., f] = sum over k.., c of x[g, n, o * stride + k * dilation - padding.., c] * w[g, k.., c, f]

    The channels c must be contiguous in w.
    """

    window: Window
    w: NDArray
    out: NDArray


def convolving_thinly(x: NDArray, parts: Sequence[ThinPart]) -> NativeAction:
    """Bind ``parts``, convolutions of ``x`` with equally many features, as one native call.

    Channels must be contiguous in x. The parts may be the phases of one convolution.
    """
    every = [expanded(part.window, x, part.w, part.out, SPATIAL) for part in parts]
    x, parts = every[0][1], [ThinPart(window, w, out) for window, _, w, out in every]
    zeros = np.zeros(x.shape[-1], x.dtype)
    records = [_of_phase(x, part, zeros) for part in parts]
    out = parts[0].out
    first = x.ctypes.data + sum(
        min(0, (size - 1) * stride)
        for size, stride in zip(x.shape[2:-1], x.strides[2:-1], strict=True)
    )
    instances = [
        (
            first + g * x.strides[0] + n * x.strides[1],
            g,
            g * out.strides[0] + n * out.strides[1],
        )
        for g, n in itertools.product(range(len(out)), range(out.shape[1]))
    ]
    lines = max(part.out.shape[2] * part.out.shape[3] for part in parts)
    phases = [record.ctypes.data for record in records]
    record = ThinRecord(len(instances), lines, len(records), instances, phases).to_array()
    code = thin_code(PrimitiveType.from_numpy(x.dtype), out.shape[-1])
    arrays = [array for part in parts for array in (part.w, part.out)]
    return native_call(code, FUNCTION, record, (x, zeros, *records, *arrays))


def _of_phase(x: NDArray, part: ThinPart, zeros: NDArray) -> NDArray:
    """Return the packed record of one part, with lists of the pairs of window and input elements that meet.

    ``zeros`` has as many zeros as there are channels.
    """
    w, out = part.w, part.out
    tables, _ = coordinate_tables(part.window, x, out.shape[2:-1], w.shape[1:-2])
    met = [
        _met(dim, table, outputs)
        for dim, table, outputs in zip(part.window.dims, tables, out.shape[2:-1], strict=True)
    ]
    lines: list[int] = []
    entries: list[int] = []
    for depth, height in itertools.product(*(range(size) for size in out.shape[2:4])):
        before = len(entries) // 2
        for (i, deep), (j, down) in itertools.product(
            enumerate(met[0][:, depth].tolist()), enumerate(met[1][:, height].tolist())
        ):
            if min(deep, down) >= 0:
                entries += (deep + down, i * w.strides[1] + j * w.strides[2])
        lines += (depth * out.strides[2] + height * out.strides[3], before, len(entries) // 2)
    record = PhaseRecord(
        w=w.ctypes.data,
        w_group_bytes=w.strides[0],
        w_column_bytes=w.strides[3],
        w_feature_bytes=w.strides[-1],
        channels=x.shape[-1],
        zeros=zeros.ctypes.data,
        out=out.ctypes.data,
        out_column_bytes=out.strides[4],
        out_feature_bytes=out.strides[-1],
        line_count=len(lines) // 3,
        width=out.shape[4],
        column_taps=w.shape[3],
        lines=lines,
        entries=entries,
        columns=met[2],
    )
    return record.to_array()


def _met(dim: WindowDimension, table: Sequence[int], outputs: int) -> NDArray:
    """Return an array [window element, position] of offsets in x in bytes, or -1 outside the input.

    ``table`` gives the offset of each padded coordinate.
    """
    coordinates = np.arange(outputs) * dim.stride
    met: NDArray = np.asarray(table)[
        np.arange(dim.size)[:, None] * dim.window_dilation + coordinates
    ]
    return met[::-1] if dim.reversal else met
