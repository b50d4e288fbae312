"""Native code that packs the operands of a convolution for multiplication in vector registers."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, splat, zeros
from runtime.codegen.ir.vectors import addresses, first_lanes, gathered, masked_load, numbers
from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import (
    ITEM,
    vector_type,
)
from runtime.cpu.kernels.convolution.ir.vector_offsets_ir import (
    POSITION,
    UNIT,
    Position,
    Unit,
    indices,
    position_in,
    step,
)
from runtime.program.argument_record import Record
from runtime.program.records.convolution import VectorMicroKernel
from spmd.lazy_dataclass import dataclass

_POSITION, _UNIT = f"[{POSITION} x i64]", f"[{UNIT} x i64]"


def _pack_columns(
    f: FunctionWriter,
    variant: VectorMicroKernel,
    to: Pointer,
    source: Pointer,
    apart: Int,
    columns: Int,
) -> None:
    """Pack a line of w as consecutive vectors, with zeros after the last column.

    Features are ``apart`` bytes apart in ``source``.
    """
    kind, n = vector_type(variant), variant.lanes
    vectors = [
        (k * n, first_lanes(columns - k * n, n), to.element("float", k * n))
        for k in range(variant.across)
    ]
    with f.when(apart.equals(ITEM)) as dense:
        for first, mask, target in vectors:
            line = masked_load(source.element("float", first), kind, mask, ITEM)
            target.store(line, align=ITEM * n)
        dense.otherwise()
        offsets = splat(apart, n).combined("mul", numbers(apart, n))
        for first, mask, target in vectors:
            columns_at = addresses(source.at(apart * first), offsets)
            target.store(gathered(columns_at, kind, mask, ITEM), align=ITEM * n)


# ---- units with contiguous channels in the input
def _copy(f: FunctionWriter, n: int, to: Pointer, source: Pointer, count: Int) -> None:
    """Copy ``count`` elements. Stores are full vectors and may write past the end, which the caller overwrites."""
    kind, full = f"<{n} x float>", count & -n
    with f.loop(full, step=n, nonempty=False) as i:
        to.element("float", i).store(source.element("float", i).load(kind, align=ITEM), align=ITEM)
    left = count - full
    with f.when(left > 0):
        last = masked_load(source.element("float", full), kind, first_lanes(left, n), ITEM)
        to.element("float", full).store(last, align=ITEM)


def _add_clear(module: Module, variant: VectorMicroKernel) -> None:
    """Add ``clear``(to, count), which stores full vectors of zeros."""
    f = internal_function(module, "clear", "ptr", "i64")
    to, count = f.parameters
    with f.loop(count, step=variant.lanes) as i:
        to.element("float", i).store(zeros(f, vector_type(variant)), align=ITEM)
    f.finish()


def add_rows(module: Module, variant: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``pack_w`` and ``pack_rows`` for inputs with contiguous channels."""
    _add_clear(module, variant)
    _add_pack_w_of_units(module, variant, record)
    _add_pack_rows(module, variant, record)


def _add_pack_w_of_units(module: Module, variant: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``pack_w``(record, w, units, unit_count, columns), which packs the lines of w of some units."""
    f = internal_function(module, "pack_w", "ptr", "ptr", "i64", "i64", record=record)
    _, w, units, unit_count, columns = f.parameters
    rec = f.record
    apart, channel_bytes = rec.feature_bytes, rec.channel_bytes
    with f.repeat(0, w, rec.packed) as panels:
        first, w_f, to_panel = panels.values
        with f.repeat(0, to_panel) as each:
            u, to_unit = each.values
            unit = f.view(Unit, units.element(_UNIT, u))
            taps, length, tap_bytes = unit.taps, unit.length, unit.tap_bytes
            with f.repeat(0, w_f.at(unit.other), to_unit) as tap:
                j, from_tap, to_tap = tap.values
                with f.repeat(0, from_tap, to_tap) as channel:
                    c, source, to = channel.values
                    _pack_columns(f, variant, to, source, apart, columns - first)
                    following, after = c + 1, to.element("float", variant.columns)
                    more = following.ult(length)
                    channel.again(following, source.at(channel_bytes), after, when=more)
                tap.again(j + 1, from_tap.at(tap_bytes), after, when=(j + 1).ult(taps))
            each.again(u + 1, after, when=(u + 1).ult(unit_count))
        behind = first + variant.columns
        panels.again(behind, w_f.at(apart * variant.columns), after, when=behind.ult(columns))
    f.finish()


def _add_pack_rows(module: Module, variant: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``pack_rows``(record, x, out, first, count, cursor, units, unit_count, rows).

    The function packs ``count`` rows of the patch matrix, from outer index ``first`` on, and sets ``rows`` to their
    addresses in the result.
    """
    f = internal_function(
        module, "pack_rows", *["ptr"] * 2, *["i64"] * 2, *["ptr"] * 2, "i64", "ptr", record=record
    )
    _, x, out, first, count, walked, units, unit_count, rows = f.parameters
    rec = f.record
    left, interior = rec.left, (rec.interior0, rec.interior1, rec.interior2)
    with f.loop(count) as r:
        position = position_in(f, walked)
        x_row, at = x.at(position.bytes), indices(position)
        rows.element("ptr", r).store(out.at(position.other))
        row = _Row(f, variant.lanes, left.at(r * (tuning.PITCH * ITEM)), x_row, units, unit_count)
        is_interior = (at[0].ult(interior[0]) & at[1].ult(interior[1])) & at[2].ult(interior[2])
        with f.when(is_interior) as inside:
            row.write_interior()
            inside.otherwise()
            row.write_inside(at)
        step(f, first + r + 1, walked)
    f.finish()


@dataclass(frozen=True, slots=True)
class _Row:
    """Row of the patch matrix, whose units are packed consecutively from ``to`` on."""

    f: FunctionWriter
    lanes: int
    to: Pointer
    x: Pointer
    units: Pointer
    unit_count: Int

    def write_interior(self) -> None:
        """Write the copy of a row without padding."""
        f = self.f
        with f.repeat(0, self.to) as each:
            u, to = each.values
            unit = f.view(Unit, self.units.element(_UNIT, u))
            count = unit.all
            _copy(f, self.lanes, to, self.x.at(unit.bytes), count)
            each.again(u + 1, to.element("float", count), when=(u + 1).ult(self.unit_count))

    def write_inside(self, at: Sequence[Int]) -> None:
        """Write the copy of the elements that are inside the input, and zeros for the others."""
        f = self.f
        high = (f.record.high0, f.record.high1, f.record.high2)
        with f.repeat(0, self.to) as each:
            u, to = each.values
            unit = f.view(Unit, self.units.element(_UNIT, u))
            source, taps, length = self.x.at(unit.bytes), unit.taps, unit.length
            indices_at = [i + d for i, d in zip(at, indices(unit), strict=True)]
            is_in = indices_at[0].ult(high[0]) & indices_at[1].ult(high[1])
            head_taps = (-indices_at[2]).smax(0).smin(taps)
            end_taps = (high[2] - indices_at[2]).smin(taps).smax(head_taps)
            head, stop = (is_in.select(n, 0) * length for n in (head_taps, end_taps))
            every = taps * length
            with f.unless_zero(head):
                f.call("void", "clear", to, head)
            _copy(
                f, self.lanes, to.element("float", head), source.element("float", head), stop - head
            )
            tail = every - stop
            with f.unless_zero(tail):
                f.call("void", "clear", to.element("float", stop), tail)
            each.again(u + 1, to.element("float", every), when=(u + 1).ult(self.unit_count))


# ---- runs of contiguous rows in the input
def add_depth(module: Module, variant: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``walk``, ``pack_w``, ``meet`` and ``pack_left`` for results with contiguous rows."""
    _add_table(module, record)
    _add_pack_w_of_positions(module, variant, record)
    _add_meet(module, record)
    _add_pack_left(module, variant, record)


def _add_table(module: Module, record: type[Record]) -> None:
    """Add ``walk``(record, first, depth, cursor), which lists ``depth`` positions from outer index ``first`` on."""
    f = internal_function(module, "walk", "i64", "i64", "ptr", record=record)
    rec, first, depth, walked = *f.parameters[:1], *f.parameters[1:]
    table, size = f.record.table, 8 * POSITION
    f.call("void", "seek", rec, first, walked)
    with f.loop(depth) as k:
        to, source = table.element(_POSITION, k), walked.element("i64", 1)
        given = f"ptr align 8 {to}, ptr align 8 {source}, i64 {size}, i1 false"
        f.add(f"call void @llvm.memcpy.inline.p0.p0.i64({given})")
        step(f, first + k + 1, walked)
    f.finish()


def _add_pack_w_of_positions(
    module: Module, variant: VectorMicroKernel, record: type[Record]
) -> None:
    """Add ``pack_w``(record, w, depth, columns), which packs the lines of w at the listed positions."""
    f = internal_function(module, "pack_w", "ptr", "i64", "i64", record=record)
    _, w, depth, columns = f.parameters
    rec = f.record
    table, apart = rec.table, rec.feature_bytes
    with f.repeat(0, w, rec.packed) as panels:
        first, w_f, to_panel = panels.values
        cursors = {0: Cursor(to_panel, variant.columns * ITEM)}
        with f.cursor_loop(depth, cursors) as (k, to):
            source = w_f.at(f.view(Position, table.element(_POSITION, k)).other)
            _pack_columns(f, variant, to[0], source, apart, columns - first)
        behind = first + variant.columns
        after = to[0].element("float", variant.columns)
        panels.again(behind, w_f.at(apart * variant.columns), after, when=behind.ult(columns))
    f.finish()


def _add_meet(module: Module, record: type[Record]) -> None:
    """Add ``meet``(record, x, unit, depth), which stores the address of the unit's run at each depth, or null."""
    f = internal_function(module, "meet", "ptr", "ptr", "i64", record=record)
    _, x, unit_at, depth = f.parameters
    rec, unit = f.record, f.view(Position, unit_at)
    table, met, high = rec.table, rec.met, (rec.high0, rec.high1, rec.high2)
    x_u, moved = x.at(unit.bytes), indices(unit)
    with f.loop(depth) as k:
        position = f.view(Position, table.element(_POSITION, k))
        source = x_u.at(position.bytes)
        each = zip(indices(position), moved, high, strict=True)
        a, b, c = ((i + d).ult(most) for i, d, most in each)
        met.element("ptr", k).store(source.or_null((a & b) & c))
    f.finish()


def _add_pack_left(module: Module, variant: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``pack_left``(record, depth, first, count), which packs ``count`` rows from row ``first`` of the runs on.

    Full vectors are loaded if the runs are long enough.
    """
    f = internal_function(module, "pack_left", "i64", "i64", "i64", record=record)
    _, depth, first, count = f.parameters
    rec, n = f.record, variant.lanes
    mask = first_lanes(count, n)
    with f.when((first + n).compared("ule", rec.run)) as is_full:
        _pack_runs(f, variant, depth, first, None)
        is_full.otherwise()
        _pack_runs(f, variant, depth, first, mask)
    f.finish()


def _pack_runs(
    f: FunctionWriter, variant: VectorMicroKernel, depth: Int, first: Int, mask: Vector | None
) -> None:
    """Pack a vector of each run from its row ``first`` on, of as many rows as ``mask`` selects; absent runs are zeros.

    A masked load from a null address would load nothing, but be slow, because some processors prepare for a fault.
    """
    n, kind = variant.lanes, vector_type(variant)
    with f.loop(depth) as k:
        start = f.record.met.pointer(k)
        with f.when(~start.is_null()) as there:
            run = start.element("float", first)
            if mask is None:
                loaded = run.load(kind, align=ITEM)
            else:
                loaded = masked_load(run, kind, mask, ITEM)
        value = there.merged(loaded, zeros(f, kind))
        f.record.left.element("float", k * n).store(value, align=ITEM * n)
