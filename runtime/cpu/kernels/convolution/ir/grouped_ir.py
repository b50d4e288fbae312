"""Native code of a convolution with adjacent groups, such as a depthwise one, in which a vector holds several groups.

One function serves all convolutions of an element type. Every output is summed over the channels of its group and the
window, one line of the window after the other. Padding and the holes of base dilation are multiplied as zeros.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import splat, zeros
from runtime.codegen.ir.vectors import first_lanes, intrinsic, masked_load, masked_store
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.argument_record import Address, Listed, Record, Word, record
from spmd.shape import PrimitiveType

FUNCTION = "spmd_convolve_groups"
#: Size of a vector in bytes.
VECTOR_BYTES = 64


@record
class GroupRecord(Record):
    """Record of one convolution of x[n, h, w, c, g], w[i, j, c, f, g] and out[n, h, w, f, g]; strides are in bytes.

    Output h and window element i of a dimension use the padded coordinate first + h * stride + i * dilation. The tables
    ``rows`` and ``columns`` give the offset of each coordinate in x, or -1 in padding and holes. Groups g are adjacent.
    """

    x: Address
    w: Address
    out: Address
    groups: Word
    batch: Word
    features: Word
    channels: Word
    height: Word
    width: Word
    window_height: Word
    window_width: Word
    x_batch: Word
    x_channel: Word
    w_row: Word
    w_column: Word
    w_channel: Word
    w_feature: Word
    out_batch: Word
    out_row: Word
    out_column: Word
    out_feature: Word
    first_row: Word
    row_stride: Word
    row_dilation: Word
    first_column: Word
    column_stride: Word
    column_dilation: Word
    rows: Listed
    columns: Listed


@cache
def group_code(kind: PrimitiveType, vectors: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32 or f64, which takes the address of a GroupRecord.

    ``vectors`` is the number of vectors of groups that are summed concurrently.
    """
    return host_jit().compile(group_ir(kind, vectors), (FUNCTION,))


def group_ir(kind: PrimitiveType, vectors: int) -> str:
    """Return the IR of ``group_code``."""
    module = Module()
    _add_one_output(module, kind, vectors)
    f = FunctionWriter(FUNCTION, GroupRecord, module=module)
    rec, (record_at,) = f.record, f.parameters
    with f.loop(rec.batch) as n, f.loop(rec.features) as feature:
        x, w = rec.x.at(n * rec.x_batch), rec.w.at(feature * rec.w_feature)
        out = rec.out.at(n * rec.out_batch).at(feature * rec.out_feature)
        with f.loop(rec.height) as h, f.loop(rec.width) as v:
            to = out.at(h * rec.out_row).at(v * rec.out_column)
            f.call("void", "one_output", record_at, x, w, to, h, v)
    return f.end()


def _add_one_output(module: Module, kind: PrimitiveType, vectors: int) -> None:
    """Add ``one_output``(record, x, w, to, h, v), which computes output (h, v) of all groups for one feature."""
    kinds = ("ptr", "ptr", "ptr", "i64", "i64")
    f = internal_function(module, "one_output", *kinds, record=GroupRecord)
    rec, (_, x, w, to, h, v) = f.record, f.parameters
    t, size = wide_type(kind), kind.byte_size
    lanes = VECTOR_BYTES // size
    vector = f"<{lanes} x {t}>"
    nothing = [zeros(f, vector)] * vectors
    row_first, column_first = (
        rec.first_row + h * rec.row_stride,
        rec.first_column + v * rec.column_stride,
    )
    with f.loop(rec.groups, step=vectors * lanes) as g:
        masks = [first_lanes(rec.groups - g - n * lanes, lanes) for n in range(vectors)]
        x_g, w_g, to_g = (base.element(t, g) for base in (x, w, to))
        with f.repeat(0, *nothing) as channels:
            c, *totals = channels.values
            x_c, w_c = x_g.at(c * rec.x_channel), w_g.at(c * rec.w_channel)
            with f.repeat(0, *totals) as rows:
                i, *before = rows.values
                row = rec.rows.word(row_first + i * rec.row_dilation)
                x_i, w_i = x_c.at(row), w_c.at(i * rec.w_row)
                with f.repeat(0, *nothing) as columns:
                    j, *sums = columns.values
                    column = rec.columns.word(column_first + j * rec.column_dilation)
                    there = splat((row >= 0) & (column >= 0), lanes)
                    x_j, w_j = x_i.at(column), w_i.at(j * rec.w_column)
                    for n, mask in enumerate(masks):
                        seen, way = mask.combined("and", there), n * VECTOR_BYTES
                        a = masked_load(x_j.at(way), vector, seen, size)
                        b = masked_load(w_j.at(way), vector, mask, size)
                        sums[n] = intrinsic("fmuladd", a, b, sums[n])
                    columns.again(j + 1, *sums, when=(j + 1).ult(rec.window_width))
                after = [a.combined("fadd", b) for a, b in zip(before, sums, strict=True)]
                rows.again(i + 1, *after, when=(i + 1).ult(rec.window_height))
            channels.again(c + 1, *after, when=(c + 1).ult(rec.channels))
        for n, (total, mask) in enumerate(zip(after, masks, strict=True)):
            masked_store(to_g.at(n * VECTOR_BYTES), total, mask, size)
    f.finish()
