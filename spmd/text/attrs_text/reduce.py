"""reduce, map, reduce-window, select-and-scatter, scan, batch norm."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import BatchNormAttrs, DimensionsAttrs, ScanAttrs, WindowAttrs
from spmd.ops.window import Window
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues, read_number
from spmd.text.attrs_text.writer import AttrWriter
from spmd.text.window_text import format_window, read_window


def _read_reduce(values: AttrValues) -> DimensionsAttrs:
    values.callee("to_apply")
    return DimensionsAttrs(values.need_ints("dimensions"))


def _read_map(values: AttrValues) -> DimensionsAttrs:
    values.callee("to_apply")
    return DimensionsAttrs(values.ints("dimensions"))


def _write_reduce(out: AttrWriter, instruction: HloInstruction) -> None:
    out.ints("dimensions", instruction.attrs_as(DimensionsAttrs).dimensions)
    out.callee("to_apply", instruction.to_apply)


def _read_reduce_window(values: AttrValues) -> WindowAttrs:
    values.callee("to_apply")
    return WindowAttrs(values.read("window", read_window, Window()))


def _write_window(out: AttrWriter, instruction: HloInstruction) -> None:
    window = instruction.attrs_as(WindowAttrs).window
    if window.rank:
        out.add("window", format_window(window))


def _write_reduce_window(out: AttrWriter, instruction: HloInstruction) -> None:
    _write_window(out, instruction)
    out.callee("to_apply", instruction.to_apply)


def _read_select_and_scatter(values: AttrValues) -> WindowAttrs:
    values.callee("select")
    values.callee("scatter")
    return WindowAttrs(values.read("window", read_window, Window()))


def _write_select_and_scatter(out: AttrWriter, instruction: HloInstruction) -> None:
    _write_window(out, instruction)
    select, scatter = instruction.called_computations
    out.callee("select", select)
    out.callee("scatter", scatter)


def _read_scan(values: AttrValues) -> ScanAttrs:
    values.callee("to_apply")
    dims = values.need_ints("dimensions")
    if len(dims) != 1:
        values.fail(f"scan takes one dimension, found {len(dims)}")
    return ScanAttrs(
        dims[0],
        values.need_integer("num_carries"),
        values.flag("is_reverse"),
        values.flag("is_associative"),
    )


def _write_scan(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ScanAttrs)
    out.ints("dimensions", (attrs.dimension,))
    out.flag("is_reverse", attrs.is_reverse)
    out.flag("is_associative", attrs.is_associative)
    out.add("num_carries", attrs.num_carries)
    out.callee("to_apply", instruction.to_apply)


def _write_batch_norm(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(BatchNormAttrs)
    out.add("epsilon", f"{attrs.epsilon:.9g}")
    out.add("feature_index", attrs.feature_index)


attrs_text(Opcode.REDUCE, read=_read_reduce, write=_write_reduce)
attrs_text(Opcode.MAP, read=_read_map, write=_write_reduce)
attrs_text(Opcode.REDUCE_WINDOW, read=_read_reduce_window, write=_write_reduce_window)
attrs_text(
    Opcode.SELECT_AND_SCATTER, read=_read_select_and_scatter, write=_write_select_and_scatter
)
attrs_text(Opcode.SCAN, read=_read_scan, write=_write_scan)
attrs_text(
    Opcode.BATCH_NORM_GRAD,
    Opcode.BATCH_NORM_INFERENCE,
    Opcode.BATCH_NORM_TRAINING,
    read=lambda values: BatchNormAttrs(
        values.need_read("epsilon", read_number), values.need_integer("feature_index")
    ),
    write=_write_batch_norm,
)
