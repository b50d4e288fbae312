"""LLVM IR that packs the operands of a convolution on the tile unit: lines of the input to planes, the kernel to tiles.

The functions read the record of tile_image_ir.
"""

from __future__ import annotations

from enum import IntEnum

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, cast, splat, zeros
from runtime.codegen.ir.vectors import addresses, gathered, masked_store, numbers
from runtime.cpu.kernels.convolution.ir.bf16_split_ir import Runs, Split, split_runs
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import (
    F32_TYPES,
    behind_each_other,
    enlarge,
    fetch_ahead,
    lanes,
    larger_of,
    loaded,
    parts_of,
)
from runtime.cpu.kernels.gemm.tile_types import FLOATS, HALVES, LINES, ROW, TILE_BYTES
from runtime.program.argument_record import Record

#: Number of words of a part of the outputs, and of a phase of the planes.
PART_WORDS, PHASE_WORDS = 5, 4
_PART, _PHASE = (f"[{size} x i64]" for size in (PART_WORDS, PHASE_WORDS))


class KernelAddressing(IntEnum):
    """Encoding of the elements of the kernel that a step of the depth uses."""

    PAIRS = 0
    """A step has 32 offsets, one per element of its depth. Features are ``feature_bytes`` apart."""
    ALONG = 1
    """A step has the offset and the number of its elements, which are contiguous. Features are ``feature_bytes`` apart.
    """
    EACH = 2
    """A step has 32 x 16 offsets: one per element of its depth and feature."""


def add_packing(module: Module, record: type[Record]) -> None:
    """Add the functions ``load_panel`` and ``pack_kernel``, which read a ``record``."""
    _add_load_line(module, record)
    _add_load_panel(module, record)
    _add_pack_along(module)
    _add_pack_pairs(module)
    _add_pack_kernel(module, record)


#: Order of the elements of a part: first all low halves of words, then all high halves.
_UNZIPPED = (*range(0, 32, 2), *range(1, 32, 2))


def _in_order(part: Vector) -> Vector:
    """Return the bf16 numbers of a part, which are pairs of two vectors' elements, one vector after the other."""
    halves: Vector = cast(part, "bitcast", HALVES)
    return halves.shuffled(_UNZIPPED)


def _splitting(f: FunctionWriter, part_bytes: Int) -> Split:
    """Return a function that splits up to 32 contiguous elements into parts ``part_bytes`` apart."""

    def split(to: Pointer, source: Pointer, before: Vector, count: Int | None) -> Vector:
        behind = source.at(64)
        if count is None:
            x0, x1 = (pointer.load(FLOATS, align=4) for pointer in (source, behind))
            fetch_ahead(source, behind)
        else:
            masks = lanes(count), lanes(count - 16)
            both = masks[0].shuffled(range(32), masks[1])
            x0, x1 = loaded(source, masks[0]), loaded(behind, masks[1])
        larger = larger_of(before, x0, x1)
        parts = [_in_order(part) for part in parts_of(x0, x1)]
        for part, pointer in zip(parts, behind_each_other(to, part_bytes), strict=True):
            if count is None:
                pointer.store(part, align=2)
            else:
                masked_store(pointer, part, both, 2)
        return larger

    return split


def _add_load_line(module: Module, record: type[Record]) -> None:
    """Add ``load_line``(record, runs, to, source, most), which splits a line of a group of images into planes.

    If the source is null, it writes a line of zeros.
    """
    f = internal_function(module, "load_line", "i64", "ptr", "ptr", "ptr", record=record)
    _, runs, to, source, most = f.parameters
    rec = f.record
    group_images, length, part_bytes = rec.group_images, rec.run_elements, rec.part_bytes
    image_bytes, plane_image_bytes = rec.image_bytes, rec.plane_image_bytes
    with f.when(source.is_null()) as outside:
        size = (runs * group_images * length) << 1
        for pointer in behind_each_other(to, part_bytes):
            f.memset(pointer, size)
        outside.otherwise()
        shape = Runs(runs, length, rec.run_bytes, rec.run_plane_bytes)
        with f.unless_zero(runs), f.loop(group_images) as n:
            pointers = to.at(n * plane_image_bytes), source.at(n * image_bytes)
            split_runs(f, _splitting(f, part_bytes), pointers, shape, (32, "i16"), most)
    f.finish()


def _add_load_panel(module: Module, record: type[Record]) -> None:
    """Add ``load_panel``(record, x, panel, most), which splits the lines of a panel's images into planes."""
    f = internal_function(module, "load_panel", "ptr", "ptr", "ptr", record=record)
    record_at, x, panel, most = f.parameters
    rec = f.record
    image_lines, group_bytes = rec.image_lines, rec.group_images * rec.image_bytes
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
    """Return one element of each of 16 features, ``stride`` bytes apart, or zeros if ``offset`` is -1."""
    none = zeros(f, FLOATS)
    with f.when(offset >= 0) as there:
        source = w.at(offset)
        with f.when(stride.equals(4)) as dense:
            neighbours = loaded(source, wanted)
            dense.otherwise()
            offsets = splat(stride, LINES).combined("mul", numbers(stride, LINES))
            apart = gathered(addresses(source, offsets), FLOATS, wanted, 4)
        some = dense.merged(neighbours, apart)
    row: Vector = there.merged(some, none)
    return row


def _each(w: Pointer, offsets: Pointer) -> Vector:
    """Return one element of each of 16 features at its own offset, or zero if the offset is -1."""
    there = offsets.load("<16 x i64>", align=8)
    return gathered(addresses(w, there), FLOATS, there.compared("icmp sge", 0), 4)


def _add_pack_along(module: Module) -> None:
    """Add ``pack_along``(rows, w, stride, features, to, steps, most), which packs tiles of at most 16 features.

    Elements are contiguous along the depth, so a row is a feature, and the tiles are transposed.
    """
    f = internal_function(module, "pack_along", "ptr", "ptr", "i64", "i64", "ptr", "i64", "ptr")
    rows, w, stride, features, to, steps, most = f.parameters
    count = features.ult(16).select(features, 16)
    with f.loop(steps) as s:
        step = rows.element("[2 x i64]", s)
        source, elements = w.at(step.word(0)), step.word(1)
        masks = lanes(elements), lanes(elements - 16)
        tiles = behind_each_other(to.at(s * F32_TYPES.step_bytes), 2 * TILE_BYTES)
        with f.loop(count) as feature:
            pointer = source.at(feature * stride)
            x0, x1 = loaded(pointer, masks[0]), loaded(pointer.at(64), masks[1])
            enlarge(most, x0, x1)
            for part, tile in zip(parts_of(x0, x1), tiles, strict=True):
                tile.element(ROW, feature).store(_in_order(part), align=64)
        for tile in tiles:
            f.call("void", "turn", tile)
    f.finish()


def _add_pack_pairs(module: Module) -> None:
    """Add ``pack_pairs``(rows, w, stride, features, to, steps, each, most), which packs pairs of elements.

    ``rows`` has the offsets of the elements of at most 16 features: one offset for all features, which are ``stride``
    bytes apart, or, if ``each``, an offset for every feature.
    """
    f = internal_function(
        module, "pack_pairs", "ptr", "ptr", "i64", "i64", "ptr", "i64", "i1", "ptr"
    )
    rows, w, stride, features, to, steps, each, most = f.parameters
    wanted = lanes(features)
    with f.loop(steps * 16) as k:
        numbers = k << 1, (k << 1) + 1
        with f.when(each) as by_feature:
            own = [_each(w, rows.element("<16 x i64>", n)) for n in numbers]
            by_feature.otherwise()
            shared = [_row(f, w, rows.word(n), stride, wanted) for n in numbers]
        x0, x1 = (by_feature.merged(a, b) for a, b in zip(own, shared, strict=True))
        enlarge(most, x0, x1)
        pointer = to.at((k >> 4) * F32_TYPES.step_bytes + (k & 15) * 64)
        tiles = behind_each_other(pointer, 2 * TILE_BYTES)
        for part, tile in zip(parts_of(x0, x1), tiles, strict=True):
            tile.store(part, align=64)
    f.finish()


def _add_pack_kernel(module: Module, record: type[Record]) -> None:
    """Add ``pack_kernel``(record, w, count, most), which packs ``count`` features for the steps of every part."""
    f = internal_function(module, "pack_kernel", "ptr", "i64", "ptr", record=record)
    _, w, count, most = f.parameters
    rec = f.record
    apart, addressing = rec.feature_bytes, rec.kernel_addressing
    along, each = (
        addressing.equals(KernelAddressing.ALONG.value),
        addressing.equals(KernelAddressing.EACH.value),
    )
    with f.loop(rec.part_count) as p:
        part = rec.parts.element(_PART, p)
        steps, to, rows = part.word(0), rec.packed.at(part.word(1)), part.pointer(4)
        with f.unless_zero(steps), f.loop(count, step=16) as first:
            block = (first // 32) * steps * F32_TYPES.step_bytes + (first & 16) * (TILE_BYTES // 16)
            given = (rows, w.at(first * apart), apart, count - first, to.at(block), steps)
            with f.when(along) as by_rows:
                f.call("void", "pack_along", *given, most)
                by_rows.otherwise()
                f.call("void", "pack_pairs", *given, each, most)
    f.finish()
