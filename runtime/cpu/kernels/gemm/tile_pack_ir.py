"""LLVM IR that packs matrices into panels of tiles: words of bf16 parts or of bytes, padded with zeros.

A source is contiguous along the depth or across it. In both cases the same loop loads vectors of 16 elements and stores
rows of 16 words. If the tiles then have the wrong order, they are transposed. Full tiles of f32 are transposed before
they are split into parts, since two tiles of f32 become three tiles of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from runtime.codegen.elements.builder import Bool, IntLike
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, cast, splat, zeros
from runtime.codegen.ir.vectors import first_lanes, intrinsic, masked_load
from runtime.cpu.kernels.gemm.tile_types import (
    FLOATS,
    HALVES,
    INTS,
    LINES,
    PANEL,
    ROW,
    ROW_BYTES,
    TILE_BYTES,
    TileTypes,
    parts_of,
)
from spmd.shape import PrimitiveType


def pack_function(kind: PrimitiveType) -> str:
    """Return the name of the function that packs ``kind``. Signed and unsigned bytes have one function."""
    return f"pack_{kind.value if kind.is_floating else 'bytes'}"


def add_pack(module: Module, types: TileTypes) -> None:
    """Add a function for each type that packs at most 32 lines into a panel, and ``.._lines`` for any number of lines.

    A line is a row of lhs or a column of rhs. The parameter turn tells that the panel's tiles must be transposed, and
    most is the address of 32 halfwords: upper bounds of the upper halves of the magnitudes of the packed f32 numbers.
    """
    kinds = {pack_function(kind): kind for kind in (types.lhs, types.rhs)}
    add_turn(module)
    if any(_turns_first(kind) for kind in kinds.values()):
        f = internal_function(module, "turn_into", "ptr", "ptr", "i64")
        _write_turn(*f.parameters)
        f.finish()
    for kind in kinds.values():
        _add_fill(module, types.group, kind, full=False)
        _add_fill(module, types.group, kind, full=True)
        _add_pack(module, types, kind)
        _add_pack_lines(module, types, kind)


def _turns_first(kind: PrimitiveType) -> bool:
    """Return whether full tiles of ``kind`` are transposed before they are split, when they have fewer words."""
    return kind.byte_size == ROW_BYTES // LINES and parts_of(kind) > 1


def _fill_function(kind: PrimitiveType, *, full: bool) -> str:
    """Return the name of the function that ``_add_fill`` adds."""
    return f"fill_{'full_' if full else ''}{pack_function(kind)}"


def _add_fill(module: Module, group: int, kind: PrimitiveType, *, full: bool) -> None:
    """Add the function that fills a tile of each part, or, if ``full``, its variant for full tiles.

    Its parameters are (tile, source, step, apart, rows, rows_less, lanes, lanes_less, scale, most). Row r of vector q
    of the source is at r * step + q * apart. Vector q has ``rows_less`` fewer rows and ``lanes_less`` fewer lanes than
    the vector before. A word of the tile has one element of each vector (or a part of it).
    """
    name = _fill_function(kind, full=full)
    f = internal_function(module, name, "ptr", "ptr", *["i64"] * 6, "float", "ptr")
    tile, source, step, apart, rows, rows_less, lanes, lanes_less, scale, most = f.parameters
    vector, item = f"<{LINES} x i{8 * kind.byte_size}>", kind.byte_size
    scales, before = splat(scale, LINES), most.load(HALVES, align=64)
    limits = [] if full else [rows - rows_less * q for q in range(group)]
    masks = [
        cast(first_lanes(lanes - lanes_less * q, LINES), "bitcast", f"i{LINES}")
        for q in range(len(limits))
    ]
    with f.repeat(0, before) as each:
        r, largest = each.values
        start, to = source.at(r * step), tile.element(ROW, r)
        read = []
        for q in range(group):
            address = start.at(apart * q)
            if full:
                read.append(address.load(vector, align=item))
                continue
            here = (r < limits[q]).select(masks[q], 0)
            mask = cast(here, "bitcast", f"<{LINES} x i1>")
            read.append(masked_load(address, vector, mask, item))
        if kind.is_floating:
            packed = split_parts([_scaled(x, scales) for x in read], parts_of(kind))
            magnitudes = packed[0].combined("and", 0x7FFF7FFF)
            larger = intrinsic("umax", largest, cast(magnitudes, "bitcast", HALVES))
        else:
            packed, larger = [_packed_bytes(read)], largest
        for p, part in enumerate(packed):
            to.at(2 * p * TILE_BYTES).store(part, align=64)
        each.again(r + 1, larger, when=(r + 1).ult(LINES))
    most.store(larger, align=64)
    f.finish()


def _scaled(x: Vector, scales: Vector) -> Vector:
    """Return the bits of f32 or bf16 numbers as scaled f32 numbers."""
    if x.type != INTS:
        x = cast(x, "zext", INTS).combined("shl", 16)
    scaled: Vector = cast(x, "bitcast", FLOATS).combined("fmul", scales)
    return scaled


def split_parts(pair: Sequence[Vector], parts: int) -> list[Vector]:
    """Split two vectors of f32 into ``parts`` bf16 parts, stored in the lower and the upper halves of words.

    All parts but the last are rounded to nearest, by adding half a unit in the last place. The remainder for the last
    of three parts has no more digits than bf16, so it is exact.
    """
    packed, rest = [], list(pair)
    for last in [False] * (parts - 1) + [True]:
        bits = [cast(x, "bitcast", INTS) for x in rest]
        rounded = bits if last else [x.combined("add", 0x8000) for x in bits]
        high = [x.combined("and", -65536) for x in rounded]
        packed.append(rounded[0].combined("lshr", 16).combined("or", high[1]))
        if not last:
            values = [cast(x, "bitcast", FLOATS) for x in high]
            rest = [x.combined("fsub", part) for x, part in zip(rest, values, strict=True)]
    return packed


def _packed_bytes(read: Sequence[Vector]) -> Vector:
    """Return words whose byte q is the element of vector q."""
    extended = [cast(x, "zext", INTS) for x in read]
    placed = [x.combined("shl", 8 * q) if q else x for q, x in enumerate(extended)]
    packed: Vector = reduce(lambda word, x: word.combined("or", x), placed)
    return packed


def _write_turn(tile: Pointer, source: Pointer, stride: IntLike) -> None:
    """Transpose 16 rows of words, ``stride`` bytes apart at ``source``, into ``tile`` by exchanging blocks of words."""
    rows: list[Vector] = [source.at(stride * r).load(INTS, align=4) for r in range(LINES)]
    for block in (8, 4, 2, 1):
        low = [c if not c & block else LINES + c - block for c in range(LINES)]
        high = [c + block if not c & block else LINES + c for c in range(LINES)]
        for r in (row for row in range(LINES) if not row & block):
            a, b = rows[r], rows[r + block]
            rows[r], rows[r + block] = a.shuffled(low, b), a.shuffled(high, b)
    for r, row in enumerate(rows):
        tile.at(r * ROW_BYTES).store(row, align=64)


def add_turn(module: Module) -> None:
    """Add ``turn``(tile), which transposes a tile in place."""
    f = internal_function(module, "turn", "ptr")
    (tile,) = f.parameters
    _write_turn(tile, tile, ROW_BYTES)
    f.finish()


def _add_pack(module: Module, types: TileTypes, kind: PrimitiveType) -> None:
    """Add the function that packs at most 32 lines.

    Its parameters are (to, source, line, depth, lines, count, turn, scale, most): ``line`` and ``depth`` are the
    source's strides in bytes, and ``count`` is the depth of the panel.
    """
    name, step_bytes = pack_function(kind), 2 * parts_of(kind) * TILE_BYTES
    f = internal_function(module, name, "ptr", "ptr", *["i64"] * 4, "i1", "float", "ptr")
    to, source, line, depth, lines, count, turn, scale, most = f.parameters
    along = depth.equals(kind.byte_size)
    step, apart = along.select(line, depth), depth * LINES
    rows_less, lanes_less = (along.select(f.constant(n), LINES - n) for n in (0, LINES))
    transposed = f.array(2 * TILE_BYTES, "i8") if _turns_first(kind) else None
    with f.loop(lines, step=LINES) as h, f.loop(count, step=types.step_depth) as d:
        left, deep = lines - h, count - d
        start, number = source.at(h * line).at(d * depth), d // types.step_depth
        tile = to.at(h * ROW_BYTES).at(number * step_bytes)
        rows, lanes = along.select(left, deep), along.select(deep, left)
        fewest = [rows - rows_less * (types.group - 1), lanes - lanes_less * (types.group - 1)]
        is_full = fewest[0].smin(fewest[1]) >= LINES
        sizes = (rows, rows_less, lanes, lanes_less, scale, most)
        block = (tile, start, step, apart, *sizes)
        if transposed is None:
            _write_tile(f, kind, block, is_full, turn)
        else:
            with f.when(is_full & turn) as turns_first:
                for n, elements in enumerate((start, start.at(apart))):
                    f.call("void", "turn_into", transposed.at(n * TILE_BYTES), elements, step)
                given = (tile, transposed, ROW_BYTES, TILE_BYTES, *sizes)
                f.call("void", _fill_function(kind, full=True), *given)
                turns_first.otherwise()
                _write_tile(f, kind, block, is_full, turn)
    f.finish()


def _write_tile(
    f: FunctionWriter, kind: PrimitiveType, block: Sequence[Any], is_full: Bool, turn: Bool
) -> None:
    """Fill a tile of each part, and transpose these tiles if ``turn``.

    ``block`` has the arguments of the filling functions, the tile first.
    """
    with f.when(is_full) as full:
        f.call("void", _fill_function(kind, full=True), *block)
        full.otherwise()
        f.call("void", _fill_function(kind, full=False), *block)
    with f.when(turn):
        for p in range(parts_of(kind)):
            f.call("void", "turn", block[0].at(2 * p * TILE_BYTES))


def _add_pack_lines(module: Module, types: TileTypes, kind: PrimitiveType) -> None:
    """Add the function that packs any number of lines into panels ``panel_bytes`` apart.

    Lines that are contiguous along the depth are packed one panel after the other, other lines one step for all panels.
    """
    name, step_bytes = pack_function(kind), 2 * parts_of(kind) * TILE_BYTES
    parameters = ["ptr", "ptr", *["i64"] * 4, "i1", "i64", "float", "ptr"]
    f = internal_function(module, f"{name}_lines", *parameters)
    to, source, line, depth, lines, count, turn, panel_bytes, scale, most = f.parameters
    most.store(zeros(f, HALVES), align=64)
    at_once = depth.equals(kind.byte_size) | lines.compared("ule", PANEL)
    span = at_once.select(count, types.step_depth)
    with f.loop(count, step=span) as d:
        deep, start = (count - d).umin(span), source.at(d * depth)
        target = to.at((d // types.step_depth) * step_bytes)
        with f.loop(lines, step=PANEL) as first:
            pointers = target.at((first // PANEL) * panel_bytes), start.at(first * line)
            sizes = (line, depth, (lines - first).umin(PANEL), deep)
            f.call("void", name, *pointers, *sizes, turn, scale, most)
    f.finish()
