"""Native code that brings convolutions' operands into the form in which vectors multiply them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Record
from runtime.codegen.ir.values import Pointer, Vector, selected, splat
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import (
    ITEM,
    PITCH,
    mask_type,
    vector_type,
)
from runtime.cpu.kernels.convolution.ir.vector_offsets_ir import (
    PLACE,
    UNIT,
    Place,
    Unit,
    indices,
    place_in,
    step,
)
from runtime.program.records.convolution import ACROSS, VectorMicroKernel

_PLACE, _UNIT = f"[{PLACE} x i64]", f"[{UNIT} x i64]"


@dataclass(frozen=True, slots=True)
class Vectors:
    """Loads and stores of vectors of numbers."""

    f: FunctionWriter
    form: VectorMicroKernel

    @property
    def kind(self) -> str:
        return vector_type(self.form)

    def lanes(self, count: Int) -> Vector:
        """Return a mask of the first ``count`` lanes."""
        mask: Vector = self.f.call(mask_type(self.form), "lanes", count)
        return mask

    def none(self) -> Vector:
        return Vector(self.f, mask_type(self.form), "zeroinitializer")

    def zeros(self) -> Vector:
        return Vector(self.f, self.kind, "zeroinitializer")

    def masked(self, place: Pointer, mask: Vector) -> Vector:
        """Load the lanes of ``mask``, and zeros."""
        name = f"@llvm.masked.load.v{self.form.lanes}f32.p0"
        given = f"ptr {place}, i32 {ITEM}, {mask.type} {mask}, {self.kind} zeroinitializer"
        return Vector(self.f, self.kind, self.f.append(f"call {self.kind} {name}({given})"))

    def gathered(self, first: Pointer, ways: Value, mask: Vector) -> Vector:
        """Load numbers that lie ``ways``, a vector of bytes, behind ``first``."""
        f, n = self.f, self.form.lanes
        name = f"@llvm.masked.gather.v{n}f32.v{n}p0"
        f.declare(f"declare {self.kind} {name}(<{n} x ptr>, i32, {mask.type}, {self.kind})")
        places = f.append(f"getelementptr i8, ptr {first}, {ways.type} {ways}")
        given = f"<{n} x ptr> {places}, i32 {ITEM}, {mask.type} {mask}, {self.kind} zeroinitializer"
        return Vector(f, self.kind, f.append(f"call {self.kind} {name}({given})"))


def _function(module: Module, name: str, record: type[Record], *parameters: str) -> FunctionWriter:
    return FunctionWriter(
        name,
        record,
        module=module,
        parameters=parameters,
        linkage="internal",
        attributes="noinline",
    )


def _pack_columns(v: Vectors, to: Pointer, source: Pointer, apart: Int, columns: Int) -> None:
    """Pack a line of w, one vector beside the other, zeros behind the last column."""
    f, n = v.f, v.form.lanes
    vectors = [(k * n, v.lanes(columns - k * n), to.element("float", k * n)) for k in range(ACROSS)]
    with f.when(apart.equals(ITEM)) as dense:
        for first, mask, target in vectors:
            target.store(v.masked(source.element("float", first), mask), align=ITEM * n)
        dense.otherwise()
        every = splat(apart, n)
        numbers = ", ".join([f"i64 {i}" for i in range(n)])
        ways = Vector(f, every.type, f.append(f"mul {every.type} {every}, <{numbers}>"))
        for first, mask, target in vectors:
            line = v.gathered(source.at(apart * first), ways, mask)
            target.store(line, align=ITEM * n)


# ---- units whose channels lie without gaps in the input
def _copy(v: Vectors, to: Pointer, source: Pointer, count: Int) -> None:
    """Copy numbers. Whole vectors are stored, behind the end, too: what follows comes later."""
    f, n = v.f, v.form.lanes
    whole = count & -n
    with f.loop(whole, step=n, nonempty=False) as i:
        value = source.element("float", i).load(v.kind, align=ITEM)
        to.element("float", i).store(value, align=ITEM)
    left = count - whole
    with f.when(left > 0):
        last = v.masked(source.element("float", whole), v.lanes(left))
        to.element("float", whole).store(last, align=ITEM)


def _add_clear(module: Module, form: VectorMicroKernel) -> None:
    """Add ``clear``(to, count), which stores whole vectors of zeros."""
    f = FunctionWriter(
        "clear",
        module=module,
        parameters=("ptr", "i64"),
        linkage="internal",
        attributes="noinline",
    )
    to, count = f.parameters
    with f.loop(count, step=form.lanes) as i:
        to.element("float", i).store(Vectors(f, form).zeros(), align=ITEM)
    f.finish()


def add_rows(module: Module, form: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``pack_w`` and ``pack_rows`` of units whose channels lie without gaps in the input."""
    _add_clear(module, form)
    _add_pack_w_of_units(module, form, record)
    _add_pack_rows(module, form, record)


def _add_pack_w_of_units(module: Module, form: VectorMicroKernel, record: type[Record]) -> None:
    f = _function(module, "pack_w", record, "ptr", "ptr", "i64", "i64")
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
                    _pack_columns(Vectors(f, form), to, source, apart, columns - first)
                    following, after = c + 1, to.element("float", form.columns)
                    more = following.ult(length)
                    channel.again(following, source.at(channel_bytes), after, when=more)
                tap.again(j + 1, from_tap.at(tap_bytes), after, when=(j + 1).ult(taps))
            each.again(u + 1, after, when=(u + 1).ult(unit_count))
        behind = first + form.columns
        panels.again(behind, w_f.at(apart * form.columns), after, when=behind.ult(columns))
    f.finish()


def _add_pack_rows(module: Module, form: VectorMicroKernel, record: type[Record]) -> None:
    f = _function(
        module, "pack_rows", record, *["ptr"] * 2, *["i64"] * 2, *["ptr"] * 2, "i64", "ptr"
    )
    _, x, out, first, count, walked, units, unit_count, rows = f.parameters
    rec = f.record
    left, whole = rec.left, (rec.whole0, rec.whole1, rec.whole2)
    with f.loop(count) as r:
        place = place_in(f, walked)
        x_row, at = x.at(place.bytes), indices(place)
        rows.element("ptr", r).store(out.at(place.other))
        row = _Row(Vectors(f, form), left.at(r * (PITCH * ITEM)), x_row, units, unit_count)
        is_whole = (at[0].ult(whole[0]) & at[1].ult(whole[1])) & at[2].ult(whole[2])
        with f.when(is_whole) as inside:
            row.write_whole()
            inside.otherwise()
            row.write_inside(at)
        step(f, first + r + 1, walked)
    f.finish()


@dataclass(frozen=True, slots=True)
class _Row:
    """Row of the patch matrix: its units one behind the other from ``to`` on."""

    v: Vectors
    to: Pointer
    x: Pointer
    units: Pointer
    unit_count: Int

    def write_whole(self) -> None:
        """Copy a row that meets no padding."""
        f = self.v.f
        with f.repeat(0, self.to) as each:
            u, to = each.values
            unit = f.view(Unit, self.units.element(_UNIT, u))
            count = unit.all
            _copy(self.v, to, self.x.at(unit.bytes), count)
            each.again(u + 1, to.element("float", count), when=(u + 1).ult(self.unit_count))

    def write_inside(self, at: Sequence[Int]) -> None:
        """Copy what lies inside the input, and clear what does not."""
        f, v = self.v.f, self.v
        high = (f.record.high0, f.record.high1, f.record.high2)
        with f.repeat(0, self.to) as each:
            u, to = each.values
            unit = f.view(Unit, self.units.element(_UNIT, u))
            source, taps, length = self.x.at(unit.bytes), unit.taps, unit.length
            places = [i + d for i, d in zip(at, indices(unit), strict=True)]
            is_in = places[0].ult(high[0]) & places[1].ult(high[1])
            head_taps = (-places[2]).smax(0).smin(taps)
            end_taps = (high[2] - places[2]).smin(taps).smax(head_taps)
            head, stop = (is_in.select(n, 0) * length for n in (head_taps, end_taps))
            every = taps * length
            with f.unless_zero(head):
                f.call("void", "clear", to, head)
            _copy(v, to.element("float", head), source.element("float", head), stop - head)
            tail = every - stop
            with f.unless_zero(tail):
                f.call("void", "clear", to.element("float", stop), tail)
            each.again(u + 1, to.element("float", every), when=(u + 1).ult(self.unit_count))


# ---- runs of rows that lie without gaps in the input
def add_depth(module: Module, form: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``walk``, ``pack_w``, ``meet`` and ``pack_left`` of runs of rows that lie without gaps in the input."""
    _add_walk(module, record)
    _add_pack_w_of_places(module, form, record)
    _add_meet(module, record)
    _add_pack_left(module, form, record)


def _add_walk(module: Module, record: type[Record]) -> None:
    f = _function(module, "walk", record, "i64", "i64", "ptr")
    rec, first, depth, walked = *f.parameters[:1], *f.parameters[1:]
    table, size = f.record.table, 8 * PLACE
    f.call("void", "seek", rec, first, walked)
    f.declare("declare void @llvm.memcpy.inline.p0.p0.i64(ptr, ptr, i64, i1)")
    with f.loop(depth) as k:
        to, source = table.element(_PLACE, k), walked.element("i64", 1)
        given = f"ptr align 8 {to}, ptr align 8 {source}, i64 {size}, i1 false"
        f.add(f"call void @llvm.memcpy.inline.p0.p0.i64({given})")
        step(f, first + k + 1, walked)
    f.finish()


def _add_pack_w_of_places(module: Module, form: VectorMicroKernel, record: type[Record]) -> None:
    f = _function(module, "pack_w", record, "ptr", "i64", "i64")
    _, w, depth, columns = f.parameters
    rec = f.record
    table, apart = rec.table, rec.feature_bytes
    with f.repeat(0, w, rec.packed) as panels:
        first, w_f, to_panel = panels.values
        cursors = {0: Cursor(to_panel, form.columns * ITEM)}
        with f.cursor_loop(depth, cursors) as (k, to):
            source = w_f.at(f.view(Place, table.element(_PLACE, k)).other)
            _pack_columns(Vectors(f, form), to[0], source, apart, columns - first)
        behind = first + form.columns
        after = to[0].element("float", form.columns)
        panels.again(behind, w_f.at(apart * form.columns), after, when=behind.ult(columns))
    f.finish()


def _add_meet(module: Module, record: type[Record]) -> None:
    """Add ``meet``(record, x, unit, depth): the begin of the unit's run at each depth, or null."""
    f = _function(module, "meet", record, "ptr", "ptr", "i64")
    _, x, unit_at, depth = f.parameters
    rec, unit = f.record, f.view(Place, unit_at)
    table, met, high = rec.table, rec.met, (rec.high0, rec.high1, rec.high2)
    x_u, moved = x.at(unit.bytes), indices(unit)
    with f.loop(depth) as k:
        place = f.view(Place, table.element(_PLACE, k))
        source = x_u.at(place.bytes)
        each = zip(indices(place), moved, high, strict=True)
        a, b, c = ((i + d).ult(most) for i, d, most in each)
        met.element("ptr", k).store(source.or_null((a & b) & c))
    f.finish()


def _add_pack_left(module: Module, form: VectorMicroKernel, record: type[Record]) -> None:
    """Add ``pack_left``(record, depth, first, count): rows, or whole vectors where the run goes on as far."""
    f = _function(module, "pack_left", record, "i64", "i64", "i64")
    _, depth, first, count = f.parameters
    v, rec, n = Vectors(f, form), f.record, form.lanes
    left, met = rec.left, rec.met
    mask = v.lanes(count)
    with f.when((first + n).compared("ule", rec.run)) as is_whole:
        with f.loop(depth) as k:
            start = met.pointer(k)
            with f.when(~start.is_null()) as there:
                loaded = start.element("float", first).load(v.kind, align=ITEM)
            value = there.merged(loaded, v.zeros())
            left.element("float", k * n).store(value, align=ITEM * n)
        is_whole.otherwise()
        with f.loop(depth) as k:
            start = met.pointer(k)
            seen = selected(~start.is_null(), mask, v.none())
            value = v.masked(start.element("float", first), seen)
            left.element("float", k * n).store(value, align=ITEM * n)
    f.finish()
