"""Packing for a convolution on the tile unit: lines of the input as planes, the kernel as packed tiles.

Pieces of IR for tile_image_ir, whose record they read.
"""

from __future__ import annotations

from enum import IntEnum

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Record
from runtime.codegen.ir.values import Pointer, Vector
from runtime.cpu.kernels.convolution.ir.bf16_split_ir import (
    FLOATS,
    Runs,
    Split,
    behind_each_other,
    fetch_ahead,
    lanes,
    larger_of,
    loaded,
    masked_store,
    parts_of,
    split_runs,
)
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import FORM
from runtime.cpu.kernels.gemm.tile_types import TILE_BYTES

#: Words that say what a part of the outputs needs, and what a phase of the planes does.
PART_WORDS, PHASE_WORDS = 5, 4
_PART, _PHASE = (f"[{words} x i64]" for words in (PART_WORDS, PHASE_WORDS))


class KernelForm(IntEnum):
    """Addressing of a step's elements in the kernel."""

    PAIRS = 0
    """Of each of 32 elements; features follow at ``feature_bytes``."""
    ALONG = 1
    """Of the first one and how many follow each other, of each feature."""
    EACH = 2
    """Of each of 32 elements for each of 16 features."""


def packing_ir(record: type[Record]) -> str:
    """``load_panel`` and ``pack_kernel`` of a ``record``."""
    module = Module()
    _add_load_line(module, record)
    _add_load_panel(module, record)
    _add_pack_along(module)
    _add_pack_pairs(module)
    _add_pack_kernel(module, record)
    return module.functions()


def _function(
    module: Module, name: str, *parameters: str, record: type[Record] | None = None
) -> FunctionWriter:
    return FunctionWriter(
        name,
        record,
        module=module,
        parameters=parameters,
        linkage="internal",
        attributes="noinline",
    )


#: All low halves, then all high halves.
_UNZIPPED = (*range(0, 32, 2), *range(1, 32, 2))


def _in_order(f: FunctionWriter, part: Vector) -> Vector:
    """Return a part's bf16 as the elements follow each other."""
    halves = Vector(f, "<32 x i16>", f.append(f"bitcast {part.type} {part} to <32 x i16>"))
    return halves.shuffled(_UNZIPPED)


def _splitting(f: FunctionWriter, part_bytes: Int) -> Split:
    """Return what splits up to 32 elements that follow each other, also in the planes."""

    def split(to: Pointer, source: Pointer, before: Vector, count: Int | None) -> Vector:
        behind = source.at(64)
        if count is None:
            x0, x1 = (place.load(FLOATS, align=4) for place in (source, behind))
            fetch_ahead(source, behind)
        else:
            masks = lanes(f, count), lanes(f, count - 16)
            both = masks[0].shuffled(range(32), masks[1])
            x0, x1 = loaded(f, source, masks[0]), loaded(f, behind, masks[1])
        larger = larger_of(f, before, x0, x1)
        parts = [_in_order(f, part) for part in parts_of(f, x0, x1)]
        for part, place in zip(parts, behind_each_other(to, part_bytes), strict=True):
            if count is None:
                place.store(part, align=2)
            else:
                masked_store(f, part, place, 2, both)
        return larger

    return split


def _add_load_line(module: Module, record: type[Record]) -> None:
    """Add ``load_line``(record, runs, to, source, most): a line of a group of images in the planes of one phase.

    The source is null where it is zeros.
    """
    f = _function(module, "load_line", "i64", "ptr", "ptr", "ptr", record=record)
    _, runs, to, source, most = f.parameters
    rec = f.record
    together, length, part_bytes = rec.together, rec.run_elements, rec.part_bytes
    image_bytes, plane_image_bytes = rec.image_bytes, rec.plane_image_bytes
    with f.when(source.is_null()) as outside:
        size = (runs * together * length) << 1
        for place in behind_each_other(to, part_bytes):
            f.add(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size}, i1 false)")
        outside.otherwise()
        shape = Runs(runs, length, rec.run_bytes, rec.run_plane_bytes)
        with f.unless_zero(runs), f.loop(together) as n:
            places = to.at(n * plane_image_bytes), source.at(n * image_bytes)
            split_runs(f, _splitting(f, part_bytes), places, shape, (32, "i16"), most)
    f.finish()


def _add_load_panel(module: Module, record: type[Record]) -> None:
    f = _function(module, "load_panel", "ptr", "ptr", "ptr", record=record)
    record_at, x, panel, most = f.parameters
    rec = f.record
    image_lines, group_bytes = rec.image_lines, rec.together * rec.image_bytes
    source = x.at(panel.word(0))
    first, count, groups = panel.word(2), panel.word(3), panel.word(4)
    with f.loop(rec.phase_count) as p:
        phase = rec.phases.element(_PHASE, p)
        shift, runs = phase.word(0), phase.word(3)
        source_p = source.at(phase.word(1))
        target = rec.planes.at(p * rec.plane_phase_bytes + phase.word(2))
        with f.loop(count) as line:
            group, within = line // image_lines, line % image_lines
            h = (within + first) * rec.line_step + shift
            is_inside = h.ult(rec.lines) & group.ult(groups)
            there = source_p.at(group * group_bytes + h * rec.line_bytes)
            to = target.at(line * rec.plane_line_bytes)
            f.call("void", "load_line", record_at, runs, to, there.or_null(is_inside), most)
    f.finish()


# ---- the kernel
def _row(f: FunctionWriter, w: Pointer, offset: Int, stride: Int, wanted: Vector) -> Vector:
    """Return an element of 16 features at ``stride`` bytes; zeros where its place is -1."""
    none = Vector(f, FLOATS, "zeroinitializer")
    with f.when(offset >= 0) as there:
        source = w.at(offset)
        with f.when(stride.equals(4)) as dense:
            neighbours = loaded(f, source, wanted)
            dense.otherwise()
            apart = f.call(FLOATS, "gathered", source, stride, wanted)
        some = dense.merged(neighbours, apart)
    row: Vector = there.merged(some, none)
    return row


def _each(f: FunctionWriter, w: Pointer, offsets: Pointer) -> Vector:
    """Return an element of each of 16 features, whose places -1 say that there is none."""
    ways = offsets.load("<16 x i64>", align=8)
    there = f.append(f"icmp sge <16 x i64> {ways}, zeroinitializer")
    places = f.append(f"getelementptr i8, ptr {w}, <16 x i64> {ways}")
    given = f"<16 x ptr> {places}, i32 4, <16 x i1> {there}, {FLOATS} zeroinitializer"
    name = "@llvm.masked.gather.v16f32.v16p0"
    return Vector(f, FLOATS, f.append(f"call {FLOATS} {name}({given})"))


def _add_pack_along(module: Module) -> None:
    """Add ``pack_along``(rows, w, stride, features, to, steps, most): tiles of at most 16 features.

    Their elements along the depth follow each other: rows by feature, then turned.
    """
    f = _function(module, "pack_along", "ptr", "ptr", "i64", "i64", "ptr", "i64", "ptr")
    rows, w, stride, features, to, steps, most = f.parameters
    count = features.ult(16).select(features, 16)
    with f.loop(steps) as s:
        step = rows.element("[2 x i64]", s)
        source, elements = w.at(step.word(0)), step.word(1)
        masks = lanes(f, elements), lanes(f, elements - 16)
        tiles = behind_each_other(to.at(s * FORM.step_bytes), 2 * TILE_BYTES)
        with f.loop(count) as feature:
            place = source.at(feature * stride)
            x0, x1 = loaded(f, place, masks[0]), loaded(f, place.at(64), masks[1])
            f.call("void", "widen", most, x0, x1)
            for part, tile in zip(parts_of(f, x0, x1), tiles, strict=True):
                tile.element("[64 x i8]", feature).store(_in_order(f, part), align=64)
        for tile in tiles:
            f.call("void", "turn", tile)
    f.finish()


def _add_pack_pairs(module: Module) -> None:
    """Add ``pack_pairs``(rows, w, stride, features, to, steps, each, most): pairs of elements of at most 16 features.

    They lie at ``stride`` bytes, and their places are ``rows``; or, if ``each``, they have places each.
    """
    f = _function(module, "pack_pairs", "ptr", "ptr", "i64", "i64", "ptr", "i64", "i1", "ptr")
    rows, w, stride, features, to, steps, each, most = f.parameters
    wanted = lanes(f, features)
    with f.loop(steps * 16) as k:
        numbers = k << 1, (k << 1) + 1
        with f.when(each) as by_feature:
            own = [_each(f, w, rows.element("<16 x i64>", n)) for n in numbers]
            by_feature.otherwise()
            shared = [_row(f, w, rows.word(n), stride, wanted) for n in numbers]
        x0, x1 = (by_feature.merged(a, b) for a, b in zip(own, shared, strict=True))
        f.call("void", "widen", most, x0, x1)
        place = to.at((k >> 4) * FORM.step_bytes + (k & 15) * 64)
        tiles = behind_each_other(place, 2 * TILE_BYTES)
        for part, tile in zip(parts_of(f, x0, x1), tiles, strict=True):
            tile.store(part, align=64)
    f.finish()


def _add_pack_kernel(module: Module, record: type[Record]) -> None:
    """Add ``pack_kernel``(record, w, count, most): the kernel of ``count`` features, as tiles of every part's steps."""
    f = _function(module, "pack_kernel", "ptr", "i64", "ptr", record=record)
    _, w, count, most = f.parameters
    rec = f.record
    apart, form = rec.feature_bytes, rec.kernel_form
    along, each = form.equals(KernelForm.ALONG.value), form.equals(KernelForm.EACH.value)
    with f.loop(rec.part_count) as p:
        part = rec.parts.element(_PART, p)
        steps, to, rows = part.word(0), rec.packed.at(part.word(1)), part.pointer(4)
        with f.unless_zero(steps), f.loop(count, step=16) as first:
            block = (first // 32) * steps * FORM.step_bytes + (first & 16) * (TILE_BYTES // 16)
            given = (rows, w.at(first * apart), apart, count - first, to.at(block), steps)
            with f.when(along) as by_rows:
                f.call("void", "pack_along", *given, most)
                by_rows.otherwise()
                f.call("void", "pack_pairs", *given, each, most)
    f.finish()
