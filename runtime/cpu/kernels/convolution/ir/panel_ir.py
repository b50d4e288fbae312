"""Native code of a convolution as matrix products of panels of the patch matrix, which are packed one after the other.

One function serves all convolutions of an element type, with a ``PanelRecord``. The patch matrix (im2col) has an
element for every pair of an output position and a window element. A *padded coordinate* per spatial dimension, the sum
of a term of the output position and one of the window element, determines the input element. A table per dimension
gives the byte offset of a coordinate in the input, or -1 in padding and in the holes of base dilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, indices_of, selected
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.libraries.blas import BlasFunction, gemm_parameters
from runtime.program.argument_record import Address, Listed, Record, Word, record, sized, word_count
from spmd.shape import PrimitiveType

#: Number of spatial dimensions of the code. For a convolution with fewer, the first ones have size 1.
SPATIAL = 3
FUNCTION = "spmd_convolve"


@record
class PatchPosition(Record):
    """Position of an element of the patch matrix: its offset in the input in bytes, and its padded coordinates."""

    bytes: Word
    coordinates: Sequence[Word] = sized("spatial")


@record
class OuterDimension(Record):
    """Outer dimension of a panel: its size, and its stride, which is a difference of positions."""

    size: Word
    step: PatchPosition


@record
class PanelInstance(Record):
    """Independent product (a group, or a part of the batch): position in x, and offsets in w and out in bytes."""

    position: PatchPosition
    w: Word
    out: Word


@record
class PanelRecord(Record):
    """Record of one convolution. A panel has the dimensions [outer, inner], and its innermost dimension is a run.

    ``outer`` are SPATIAL + 1 dimensions, slowest first; ``total`` is the number of their indices, and
    ``outer_per_block`` that of a panel. ``runs`` lists the position of each run, ``run_count`` in all and
    ``runs_per_block`` in a panel. ``table0`` to ``table2`` give the offset of each coordinate in the input, or -1.
    ``inner_is_depth`` tells that the inner dimension is the depth of the product. ``order`` and ``transpose_..`` are
    CBLAS's enumerators. Strides are in bytes, but the leading dimensions ``ldb`` of w and ``ldc`` of out are in
    elements.
    """

    x: Address
    w: Address
    out: Address
    panel: Address
    inner_is_depth: Word
    columns: Word
    order: Word
    transpose_panel: Word
    transpose_w: Word
    ldb: Word
    ldc: Word
    depth_stride_w: Word
    row_stride_out: Word
    total: Word
    outer_per_block: Word
    run_count: Word
    run_length: Word
    runs_per_block: Word
    instance_count: Word
    outer: Sequence[OuterDimension]
    instances: Listed
    runs: Listed
    table0: Listed
    table1: Listed
    table2: Listed


_INSTANCE, _POSITION = (
    f"[{word_count(kind, {'spatial': SPATIAL})} x i64]" for kind in (PanelInstance, PatchPosition)
)


@cache
def convolution_code(kind: PrimitiveType, gemm: BlasFunction) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for f32 or f64, which takes the address of a PanelRecord."""
    ir = convolution_ir(kind, gemm.index_bits)
    return host_jit().compile(ir, (FUNCTION,), {"gemm": gemm.address}, passes=Passes.TIDY)


def convolution_ir(kind: PrimitiveType, index_bits: int) -> str:
    """Return the IR of ``convolution_code``. The sizes of BLAS have ``index_bits`` bits."""
    t = wide_type(kind)
    module = Module()
    _add_pack(module, t)
    _add_multiply(module, t, f"i{index_bits}")
    f = FunctionWriter(FUNCTION, PanelRecord, module=module, spatial=SPATIAL, outer=SPATIAL + 1)
    rec, record_at = f.record, f.parameters[0]
    total, runs, length = rec.total, rec.run_count, rec.run_length
    instances, outer_at_once, runs_at_once = rec.instances, rec.outer_per_block, rec.runs_per_block
    with f.loop(rec.instance_count) as g, f.loop(runs, step=runs_at_once) as k:
        instance = instances.element(_INSTANCE, g)
        runs_end = (k + runs_at_once).umin(runs)
        with f.loop(total, step=outer_at_once) as r:
            end = (r + outer_at_once).umin(total)
            f.call("void", "pack", record_at, instance, k, runs_end, r, end)
            inner = (k * length, (runs_end - k) * length)
            f.call("void", "multiply", record_at, instance, *inner, r, end - r)
    return f.end()


def _function(module: Module, name: str) -> FunctionWriter:
    """Return the writer of function ``name``(record, instance, two inner indices or counts, two outer ones)."""
    return internal_function(
        module, name, "ptr", *["i64"] * 4, record=PanelRecord, spatial=SPATIAL, outer=SPATIAL + 1
    )


def _add_pack(module: Module, t: str) -> None:
    """Add ``pack``(record, instance, first run, end, first outer index, end), which packs a panel."""
    f = _function(module, "pack")
    _, instance, first_run, run_end, first_row, row_end = f.parameters
    rec = f.record
    x, length, runs = rec.x, rec.run_length, rec.runs
    tables = (rec.table0, rec.table1, rec.table2)
    sizes, steps = [d.size for d in rec.outer], [_parts(d.step) for d in rec.outer]
    with f.repeat(first_row, rec.panel) as outer:
        row, to_row = outer.values
        base, *coordinates = _outer_position(instance, row, sizes, steps)
        with f.repeat(first_run, to_row) as inner:
            k, to = inner.values
            position = runs.element(_POSITION, k)
            found = [
                table.word(c + position.word(n))
                for n, (table, c) in enumerate(zip(tables, coordinates, strict=True), 1)
            ]
            with f.when(((found[0] | found[1]) | found[2]) < 0) as outside:
                with f.loop(length) as i:
                    to.element(t, i).store(Value(f, t, "0.0"))
                outside.otherwise()
                way = ((found[0] + found[1]) + found[2]) + position.word(0)
                source = x.at(base).at(way)
                with f.loop(length) as i:
                    to.element(t, i).store(source.element(t, i).load(t))
            after = to.element(t, length)
            inner.again(k + 1, after, when=(k + 1).ult(run_end))
        outer.again(row + 1, after, when=(row + 1).ult(row_end))
    f.finish()


def _parts(position: Any) -> list[Int]:
    """Return the words of ``position``: the offset, and then the coordinates."""
    return [position.bytes, *position.coordinates]


def _outer_position(
    instance: Pointer, number: Int, sizes: Sequence[Int], steps: Sequence[Sequence[Int]]
) -> list[Int]:
    """Return the position of outer index ``number`` of ``instance``, as its words."""
    indices, position = indices_of(number, sizes[1:]), []
    for part in range(SPATIAL + 1):
        at = instance.word(part)
        for index, step in zip(indices, steps, strict=True):
            at = at + index * step[part]
        position.append(at)
    return position


def _add_multiply(module: Module, t: str, index: str) -> None:
    """Add ``multiply``(record, instance, first inner index, count, first outer index, count), for one panel."""
    module.declare(f"declare void @gemm({', '.join(gemm_parameters(index, t))})")
    f = _function(module, "multiply")
    _, instance, first_inner, inner, first_outer, outer = f.parameters
    rec, inside = f.record, f.record.inner_is_depth.differs(0)
    m, k = inside.select(outer, inner), inside.select(inner, outer)
    first_m = inside.select(first_outer, first_inner)
    first_k = inside.select(first_inner, first_outer)
    b = rec.w.at(instance.word(SPATIAL + 1) + first_k * rec.depth_stride_w)
    c = rec.out.at(instance.word(SPATIAL + 2) + first_m * rec.row_stride_out)
    one, zero = Value(f, t, "1.0"), Value(f, t, "0.0")
    beta = selected(first_k.equals(0), zero, one)
    flags = [x.resized("i32") for x in (rec.order, rec.transpose_panel, rec.transpose_w)]
    sizes = [x.resized(index) for x in (m, rec.columns, k)]
    lda, ldb, ldc = (x.resized(index) for x in (inner, rec.ldb, rec.ldc))
    f.call("void", "gemm", *flags, *sizes, one, rec.panel, lda, b, ldb, beta, c, ldc)
    f.finish()
