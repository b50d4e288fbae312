"""LLVM IR that packs the operands of a kernel gradient on the tile unit.

Positions of w are packed to tiles, and images of x are split into planes. The functions read the record of
tile_gradient_ir.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, selected, zeros
from runtime.codegen.ir.vectors import masked_store
from runtime.cpu.kernels.convolution.ir.bf16_split_ir import Runs, Split, split_runs
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import (
    F32_TYPES,
    MASK,
    behind_each_other,
    fetch_ahead,
    lanes,
    larger_of,
    loaded,
    parts_of,
)
from runtime.cpu.kernels.gemm.tile_types import FLOATS, INTS, LINES, ROW, TILE_BYTES
from runtime.program.argument_record import Record

#: Number of words of a panel without its outputs along the rows, and of a phase of the columns.
PANEL_WORDS, PHASE_WORDS = 6, 3


def add_packing(module: Module, record: type[Record]) -> None:
    """Add the functions ``pack_left`` and ``load_plane``, which read a ``record``."""
    _add_pack_line(module, record)
    _add_pack_left(module, record)
    _add_load_pair(module, record)
    _add_load_plane(module, record)


# ---- positions of w
def _pack_step(
    f: FunctionWriter,
    source: Pointer,
    positions: Pointer,
    masks: tuple[Vector, Vector],
    room: tuple[Pointer, Pointer],
    most: Pointer,
) -> None:
    """Pack 16 words of 16 features of a pair of images as one tile for each part.

    ``positions`` gives the offset of each word's first image, and ``masks`` select the features of the two images. Rows
    are transposed before they are split into three parts. ``room`` is the address of the tile, and that of two tiles of
    rows.
    """
    tile, rows0 = room
    rows = rows0, rows0.at(TILE_BYTES)
    with f.loop(LINES) as r:
        offset = positions.word(r)
        is_there = offset >= 0
        seen = [selected(is_there, mask, zeros(f, MASK)) for mask in masks]
        first = source.at(offset)
        images = first, first.at(f.record.w_image_bytes)
        for image, mask, target in zip(images, seen, rows, strict=True):
            target.element(ROW, r).store(loaded(image, mask), align=64)
        fetch_ahead(*images)
    for each in rows:
        f.call("void", "turn", each)
    with f.repeat(0, most.load(INTS)) as features:
        feature, largest = features.values
        y0, y1 = (each.element(ROW, feature).load(FLOATS, align=64) for each in rows)
        larger = larger_of(largest, y0, y1)
        targets = behind_each_other(tile.element(ROW, feature), 2 * TILE_BYTES)
        for part, target in zip(parts_of(y0, y1), targets, strict=True):
            target.store(part, align=64)
        features.again(feature + 1, larger, when=(feature + 1).ult(LINES))
    most.store(larger)


def _add_pack_line(module: Module, record: type[Record]) -> None:
    """Add ``pack_line``(record, source, wanted, second, to, rows, most), for a line of a group of pairs.

    ``wanted`` and ``second`` select the features of the first and of the second image of a pair.
    """
    f = internal_function(
        module, "pack_line", "ptr", MASK, MASK, "ptr", "ptr", "ptr", record=record
    )
    _, source, wanted, second, to, rows, most = f.parameters
    positions = f.record.positions
    with f.loop(f.record.line_steps) as s:
        room = to.at(s * F32_TYPES.step_bytes), rows
        _pack_step(f, source, positions.element("[16 x i64]", s), (wanted, second), room, most)
    f.finish()


def _add_pack_left(module: Module, record: type[Record]) -> None:
    """Add ``pack_left``(record, w, features, panel, rows, most), which packs a panel's lines of w."""
    f = internal_function(module, "pack_left", "ptr", "i64", "ptr", "ptr", "ptr", record=record)
    record_at, w, features, panel, rows, most = f.parameters
    rec = f.record
    images, groups, lines = panel.word(2), panel.word(3), panel.word(4)
    source, group_images = w.at(panel.word(1)), rec.group_pairs << 1
    group_way = group_images * rec.w_image_bytes
    line_way = rec.line_steps * F32_TYPES.step_bytes
    group_packed = line_way * rec.panel_lines
    with f.loop(features, step=16) as first:
        wanted = lanes(features - first)
        half, tile = (first >> 5) * rec.panel_bytes, (first & 16) * (TILE_BYTES // 16)
        cursors = {
            0: Cursor(source.at(first << 2), group_way),
            1: Cursor(rec.left.at(half + tile), group_packed),
        }
        with f.cursor_loop(groups, cursors) as (g, at):
            has_second = (g * group_images + 1).ult(images)
            second = selected(has_second, wanted, zeros(f, MASK))
            with f.loop(lines) as line:
                pointers = at[0].at(line * rec.w_line_bytes), at[1].at(line * line_way)
                given = (pointers[0], wanted, second, pointers[1], rows, most)
                f.call("void", "pack_line", record_at, *given)
    f.finish()


# ---- images of x
def _splitting(f: FunctionWriter, part_bytes: Int, second_way: Int, has_second: Bool) -> Split:
    """Return a function that splits elements of two images; the second, if any, is ``second_way`` bytes away."""

    def split(to: Pointer, source: Pointer, before: Vector, count: Int | None) -> Vector:
        other = source.at(second_way)
        if count is None:
            x0, there = (pointer.load(FLOATS, align=4) for pointer in (source, other))
            x1 = selected(has_second, there, zeros(f, FLOATS))
            fetch_ahead(source, other)
        else:
            wanted = lanes(count)
            x0 = loaded(source, wanted)
            x1 = loaded(other, selected(has_second, wanted, zeros(f, MASK)))
        larger = larger_of(before, x0, x1)
        for part, pointer in zip(parts_of(x0, x1), behind_each_other(to, part_bytes), strict=True):
            if count is None:
                pointer.store(part, align=4)
            else:
                masked_store(pointer, part, wanted, 4)
        return larger

    return split


def _add_load_pair(module: Module, record: type[Record]) -> None:
    """Add ``load_pair``(record, to, source, runs, elements, has_second, down, most).

    It splits the lines of a pair of images, ``runs`` runs each, into the planes of one phase.
    """
    f = internal_function(
        module, "load_pair", "ptr", "ptr", "i64", "i64", "i1", "i64", "ptr", record=record
    )
    _, to, source, run_count, elements, has_second, down, most = f.parameters
    rec = f.record
    second_way = has_second.select(rec.x_image_bytes, 0)
    split = _splitting(f, rec.part_bytes, second_way, has_second)
    runs = Runs(run_count, elements, rec.run_bytes, rec.run_plane_bytes)
    line_bytes, plane_line_bytes, line_unit = rec.line_bytes, rec.plane_line_bytes, rec.line_unit
    lines = rec.lines
    with f.loop(rec.plane_lines) as line:
        h = line * line_unit + down
        with f.when(h.ult(lines)):
            pointers = to.at(line * plane_line_bytes), source.at(h * line_bytes)
            split_runs(f, split, pointers, runs, (LINES, "i32"), most)
    f.finish()


def _add_load_plane(module: Module, record: type[Record]) -> None:
    """Add ``load_plane``(record, x, channels, panel, most), which splits channels of a panel's images into planes.

    Lines outside images stay unchanged, because no product reads them.
    """
    f = internal_function(module, "load_plane", "ptr", "i64", "ptr", "ptr", record=record)
    record_at, x, channels, panel, most = f.parameters
    rec = f.record
    images, down = panel.word(2), panel.word(5)
    source, pairs = x.at(panel.word(0)), (images + 1) >> 1
    group_bytes = rec.plane_lines * rec.plane_line_bytes
    elements = rec.run_elements.equals(0).select(channels, rec.run_elements)
    with f.loop(rec.phase_count) as p:
        phase = rec.phases.element(f"[{PHASE_WORDS} x i64]", p)
        source_p, plane_p = source.at(phase.word(0)), rec.plane.at(phase.word(1))
        runs = phase.word(2)
        with f.unless_zero(runs), f.loop(pairs) as n:
            group, number = n // rec.group_pairs, n % rec.group_pairs
            to = plane_p.at(group * group_bytes + number * rec.plane_pair_bytes)
            first = n << 1
            images_at = source_p.at(first * rec.x_image_bytes)
            given = (to, images_at, runs, elements, (first + 1).ult(images), down, most)
            f.call("void", "load_pair", record_at, *given)
    f.finish()
