"""LLVM IR that packs matrices into panels of tiles: words of bf16 parts or of bytes, padded with zeros.

A source is contiguous along the depth or across it. In both cases the same loop loads vectors of 16 elements and stores
rows of 16 words; if the tiles then have the wrong order, they are transposed. Full tiles of f32 are transposed before
they are split into parts, when they have a third of the words.
"""

from __future__ import annotations

from runtime.cpu.kernels.gemm.tile_types import (
    LINES,
    PANEL,
    TILE_BYTES,
    TileTypes,
    lanes_below,
    listed,
    parts_of,
    repeated,
)
from spmd.shape import PrimitiveType


def pack_function(kind: PrimitiveType) -> str:
    """Return the name of the function that packs ``kind``; signs of bytes are a matter of the unit's instructions."""
    return f"pack_{kind.value if kind.is_floating else 'bytes'}"


def pack_ir(types: TileTypes) -> str:
    """Return the functions that pack at most 32 lines of some depth into a panel; ``.._lines``: any number of lines.

    A line is a row of lhs, or a column of rhs. turn: the panel's tiles are transposed. most: address of 32 halfwords,
    upper bounds of the upper halves of the magnitudes of the packed f32.
    """
    kinds = {pack_function(kind): kind for kind in (types.lhs, types.rhs)}
    packs = [
        _fill(types.group, kind, full=False)
        + _fill(types.group, kind, full=True)
        + _pack(types, kind)
        for kind in kinds.values()
    ]
    transposes = any(_turns_first(kind) for kind in kinds.values())
    return TURN + (_TURN_INTO if transposes else "") + "".join(packs)


def _pack(types: TileTypes, kind: PrimitiveType) -> str:
    turns = "\n".join(
        f"  %part{p} = getelementptr i8, ptr %tile, i64 {2 * p * TILE_BYTES}\n"
        f"  call void @turn(ptr %part{p})"
        for p in range(parts_of(kind))
    )
    full = _TRANSPOSED_FIRST + _FULL_TILE if _turns_first(kind) else _FULL_TILE
    return (_PACK + _PACK_LINES).format(
        name=pack_function(kind),
        panel=PANEL,
        item=kind.byte_size,
        lines=LINES,
        depth=types.step_depth,
        log_depth=types.step_depth.bit_length() - 1,
        step_bytes=2 * parts_of(kind) * TILE_BYTES,
        row=TILE_BYTES // LINES,
        more=types.group - 1,
        turns=turns,
        full=full.format(name=pack_function(kind)),
        scratch=_SCRATCH if _turns_first(kind) else "",
    )


def _turns_first(kind: PrimitiveType) -> bool:
    """Return whether full tiles are transposed before they are split, when they have fewer words."""
    return kind.byte_size == TILE_BYTES // LINES // LINES and parts_of(kind) > 1


def _fill(group: int, kind: PrimitiveType, *, full: bool) -> str:
    """Return ``@fill_``, which fills a tile of each part, or ``@fill_full_`` for full tiles.

    Row r of vector q is at r * step + q * apart. Vector q has ``rows_less`` fewer rows and ``lanes_less`` fewer lanes
    than the one before.
    """
    element, nl = _element_type(kind), "\n"
    before, each = [], []
    vector, item = f"<{LINES} x {element}>", kind.byte_size
    for q in range(group):
        each += [
            f"  %apart{q} = mul i64 %apart, {q}",
            f"  %from{q} = getelementptr i8, ptr %from, i64 %apart{q}",
        ]
        if full:
            each.append(f"  %x{q} = load {vector}, ptr %from{q}, align {item}")
            continue
        mask = f"<{LINES} x i1> %mask_here{q}"
        source = f"ptr %from{q}, i32 {item}, {mask}, {vector} zeroinitializer"
        before += [
            f"  %rows_off{q} = mul i64 %rows_less, {q}",
            f"  %rows{q} = sub i64 %rows, %rows_off{q}",
            f"  %lanes_off{q} = mul i64 %lanes_less, {q}",
            f"  %lanes{q} = sub i64 %lanes, %lanes_off{q}",
            lanes_below(f"mask{q}", f"%lanes{q}"),
            f"  %bits{q} = bitcast <{LINES} x i1> %mask{q} to i{LINES}",
        ]
        each += [
            f"  %is_row{q} = icmp slt i64 %r, %rows{q}",
            f"  %here{q} = select i1 %is_row{q}, i{LINES} %bits{q}, i{LINES} 0",
            f"  %mask_here{q} = bitcast i{LINES} %here{q} to <{LINES} x i1>",
            f"  %x{q} = call {vector} @llvm.masked.load.v{LINES}{element}.p0({source})",
        ]
    packing = _float_packing(kind) if kind.is_floating else _byte_packing()
    stores = [
        f"  %to{p} = getelementptr i8, ptr %to, i64 {2 * p * TILE_BYTES}\n"
        f"  store <{LINES} x i32> %packed{p}, ptr %to{p}, align 64"
        for p in range(parts_of(kind))
    ]
    name = f"fill_{'full_' if full else ''}{pack_function(kind)}"
    return f"""
define internal void @{name}(ptr %tile, ptr %source, i64 %step, i64 %apart,
    i64 %rows, i64 %rows_less, i64 %lanes, i64 %lanes_less, float %scale, ptr %most) noinline {{
entry:
  %most_before = load <{2 * LINES} x i16>, ptr %most, align 64
  %scales_one = insertelement <{LINES} x float> poison, float %scale, i32 0
  %scales = shufflevector <{LINES} x float> %scales_one, <{LINES} x float> poison, <{LINES} x i32> zeroinitializer
{nl.join(before)}
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %next, %loop ]
  %largest = phi <{2 * LINES} x i16> [ %most_before, %entry ], [ %larger, %loop ]
  %way = mul i64 %r, %step
  %from = getelementptr i8, ptr %source, i64 %way
  %to = getelementptr [{TILE_BYTES // LINES} x i8], ptr %tile, i64 %r
{nl.join(each)}
{nl.join(packing)}
{nl.join(stores)}
  %next = add nuw i64 %r, 1
  %more = icmp ult i64 %next, {LINES}
  br i1 %more, label %loop, label %end
end:
  store <{2 * LINES} x i16> %larger, ptr %most, align 64
  ret void
}}
"""


def _element_type(kind: PrimitiveType) -> str:
    """Return the type in which elements are read."""
    return {PrimitiveType.F32: "i32", PrimitiveType.BF16: "i16"}.get(kind, "i8")


def _float_packing(kind: PrimitiveType) -> list[str]:
    """Return lines that split two vectors into scaled parts, in the lower and the upper halves of words.

    Parts are rounded to nearest by adding half a unit in the last place; the last part is exact.
    """
    ints, floats = f"<{LINES} x i32>", f"<{LINES} x float>"
    upper, half, shift = (repeated(x, "i32") for x in (-65536, 0x8000, 16))
    lines = []
    for q in range(2):
        bits = f"%x{q}"
        if kind is PrimitiveType.BF16:
            lines.append(f"  %wide{q} = zext <{LINES} x i16> %x{q} to {ints}")
            lines.append(f"  %float{q} = shl {ints} %wide{q}, {shift}")
            bits = f"%float{q}"
        lines.append(f"  %read{q} = bitcast {ints} {bits} to {floats}")
        lines.append(f"  %rest0_{q} = fmul {floats} %read{q}, %scales")
    parts = parts_of(kind)
    for p in range(parts):
        last = p == parts - 1
        for q in range(2):
            lines.append(f"  %bits{p}_{q} = bitcast {floats} %rest{p}_{q} to {ints}")
            added = repeated(0, "i32") if last else half
            lines.append(f"  %near{p}_{q} = add {ints} %bits{p}_{q}, {added}")
            lines.append(f"  %high{p}_{q} = and {ints} %near{p}_{q}, {upper}")
            if not last:
                lines.append(f"  %part{p}_{q} = bitcast {ints} %high{p}_{q} to {floats}")
                lines.append(f"  %rest{p + 1}_{q} = fsub {floats} %rest{p}_{q}, %part{p}_{q}")
        lines.append(f"  %low{p} = lshr {ints} %near{p}_0, {shift}")
        lines.append(f"  %packed{p} = or {ints} %low{p}, %high{p}_1")
    halves = f"<{2 * LINES} x i16>"
    return [
        *lines,
        f"  %magnitudes = and {ints} %packed0, {repeated(0x7FFF7FFF, 'i32')}",
        f"  %as_halves = bitcast {ints} %magnitudes to {halves}",
        f"  %larger = call {halves} @llvm.umax.v{2 * LINES}i16({halves} %largest, {halves} %as_halves)",
    ]


def _byte_packing() -> list[str]:
    ints = f"<{LINES} x i32>"
    lines = ["  %word0 = zext <16 x i8> %x0 to <16 x i32>"]
    for q in range(1, 4):
        lines += [
            f"  %wide{q} = zext <{LINES} x i8> %x{q} to {ints}",
            f"  %moved{q} = shl {ints} %wide{q}, {repeated(8 * q, 'i32')}",
            f"  %word{q} = or {ints} %word{q - 1}, %moved{q}",
        ]
    return [
        *lines,
        f"  %packed0 = or {ints} %word3, zeroinitializer",
        f"  %larger = or <{2 * LINES} x i16> %largest, zeroinitializer",
    ]


def _turn(arguments: str, source: str, stride: str) -> str:
    """Return a function that transposes 16 rows of words, ``stride`` bytes apart at ``source``, into %tile.

    It exchanges blocks of 8, 4, 2 and 1 words.
    """
    vector = f"<{LINES} x i32>"
    lines = [f"define internal void {arguments} noinline {{"]
    for r in range(LINES):
        lines.append(f"  %way{r} = mul i64 {stride}, {r}")
        lines.append(f"  %from{r} = getelementptr i8, ptr {source}, i64 %way{r}")
        lines.append(f"  %v0_{r} = load {vector}, ptr %from{r}, align 4")
    for stage, block in enumerate((8, 4, 2, 1)):
        low = [c if not c & block else LINES + c - block for c in range(LINES)]
        high = [c + block if not c & block else LINES + c for c in range(LINES)]
        for r in (row for row in range(LINES) if not row & block):
            pair = f"{vector} %v{stage}_{r}, {vector} %v{stage}_{r + block}"
            for row, order in ((r, low), (r + block, high)):
                lines.append(
                    f"  %v{stage + 1}_{row} = shufflevector {pair}, {vector} {listed(order)}"
                )
    for r in range(LINES):
        lines.append(f"  %at{r} = getelementptr i8, ptr %tile, i64 {r * TILE_BYTES // LINES}")
        lines.append(f"  store {vector} %v4_{r}, ptr %at{r}, align 64")
    return "\n".join([*lines, "  ret void", "}", ""])


#: ``@turn(tile)``, which transposes a tile in place.
TURN = _turn("@turn(ptr %tile)", "%tile", str(TILE_BYTES // LINES))
#: ``@turn_into(tile, source, stride)``.
_TURN_INTO = _turn("@turn_into(ptr %tile, ptr %source, i64 %stride)", "%source", "%stride")

_FULL_TILE = """
  call void @fill_full_{name}(ptr %tile, ptr %from, i64 %step, i64 %apart, i64 %rows, i64 %rows_less, i64 %lanes,
    i64 %lanes_less, float %scale, ptr %most)
  br label %filled
"""

_SCRATCH = f"""
  %turned = alloca [{2 * TILE_BYTES} x i8], align 64
  %turned1 = getelementptr i8, ptr %turned, i64 {TILE_BYTES}"""

_TRANSPOSED_FIRST = f"""
  br i1 %turn, label %turn_first, label %as_it_lies
turn_first:
  %from1 = getelementptr i8, ptr %from, i64 %apart
  call void @turn_into(ptr %turned, ptr %from, i64 %step)
  call void @turn_into(ptr %turned1, ptr %from1, i64 %step)
  call void @fill_full_{{name}}(ptr %tile, ptr %turned, i64 {TILE_BYTES // LINES}, i64 {TILE_BYTES}, i64 %rows,
    i64 %rows_less, i64 %lanes, i64 %lanes_less, float %scale, ptr %most)
  br label %some_done
as_it_lies:
"""

_PACK = """
define internal void @{name}(ptr %to, ptr %source, i64 %line, i64 %depth, i64 %lines, i64 %count, i1 %turn,
    float %scale, ptr %most) noinline {{
entry:{scratch}
  %along = icmp eq i64 %depth, {item}
  %step = select i1 %along, i64 %line, i64 %depth
  %rows_less = select i1 %along, i64 0, i64 {lines}
  %lanes_less = select i1 %along, i64 {lines}, i64 0
  %rows_less_all = mul i64 %rows_less, {more}
  %lanes_less_all = mul i64 %lanes_less, {more}
  %apart = mul i64 %depth, {lines}
  br label %half
half:
  %h = phi i64 [ 0, %entry ], [ %next_h, %half_done ]
  %left = sub i64 %lines, %h
  %h_way = mul i64 %h, %line
  %source_h = getelementptr i8, ptr %source, i64 %h_way
  %h_offset = mul i64 %h, {row}
  %to_h = getelementptr i8, ptr %to, i64 %h_offset
  br label %some
some:
  %d = phi i64 [ 0, %half ], [ %next_d, %some_done ]
  %deep = sub i64 %count, %d
  %d_way = mul i64 %d, %depth
  %from = getelementptr i8, ptr %source_h, i64 %d_way
  %number = lshr i64 %d, {log_depth}
  %tile_offset = mul i64 %number, {step_bytes}
  %tile = getelementptr i8, ptr %to_h, i64 %tile_offset
  %rows = select i1 %along, i64 %left, i64 %deep
  %lanes = select i1 %along, i64 %deep, i64 %left
  %fewest_rows = sub i64 %rows, %rows_less_all
  %fewest_lanes = sub i64 %lanes, %lanes_less_all
  %fewest = call i64 @llvm.smin.i64(i64 %fewest_rows, i64 %fewest_lanes)
  %is_full = icmp sge i64 %fewest, {lines}
  br i1 %is_full, label %fill_all, label %fill_some
fill_all:
{full}
fill_some:
  call void @fill_{name}(ptr %tile, ptr %from, i64 %step, i64 %apart, i64 %rows, i64 %rows_less, i64 %lanes,
    i64 %lanes_less, float %scale, ptr %most)
  br label %filled
filled:
  br i1 %turn, label %turns, label %some_done
turns:
{turns}
  br label %some_done
some_done:
  %next_d = add i64 %d, {depth}
  %more_d = icmp slt i64 %next_d, %count
  br i1 %more_d, label %some, label %half_done
half_done:
  %next_h = add i64 %h, {lines}
  %more_h = icmp slt i64 %next_h, %lines
  br i1 %more_h, label %half, label %end
end:
  ret void
}}
"""

#: Lines that are contiguous along the depth are packed one panel after the other; others one step for all panels.
_PACK_LINES = """
define internal void @{name}_lines(ptr %to, ptr %source, i64 %line, i64 %depth, i64 %lines, i64 %count, i1 %turn,
    i64 %panel_bytes, float %scale, ptr %most) noinline {{
entry:
  store <32 x i16> zeroinitializer, ptr %most, align 64
  %along = icmp eq i64 %depth, {item}
  %one_panel = icmp ule i64 %lines, {panel}
  %at_once = or i1 %along, %one_panel
  %span = select i1 %at_once, i64 %count, i64 {depth}
  br label %some_depth
some_depth:
  %d = phi i64 [ 0, %entry ], [ %next_d, %depth_done ]
  %depth_left = sub i64 %count, %d
  %deep = call i64 @llvm.umin.i64(i64 %depth_left, i64 %span)
  %d_way = mul i64 %d, %depth
  %from_d = getelementptr i8, ptr %source, i64 %d_way
  %number_d = lshr i64 %d, {log_depth}
  %offset_d = mul i64 %number_d, {step_bytes}
  %to_d = getelementptr i8, ptr %to, i64 %offset_d
  br label %panel
panel:
  %l = phi i64 [ 0, %some_depth ], [ %next_l, %panel ]
  %l_way = mul i64 %l, %line
  %from = getelementptr i8, ptr %from_d, i64 %l_way
  %number_l = udiv i64 %l, {panel}
  %offset_l = mul i64 %number_l, %panel_bytes
  %to_l = getelementptr i8, ptr %to_d, i64 %offset_l
  %lines_left = sub i64 %lines, %l
  %some_lines = call i64 @llvm.umin.i64(i64 %lines_left, i64 {panel})
  call void @{name}(ptr %to_l, ptr %from, i64 %line, i64 %depth, i64 %some_lines, i64 %deep, i1 %turn, float %scale,
    ptr %most)
  %next_l = add i64 %l, {panel}
  %more_l = icmp ult i64 %next_l, %lines
  br i1 %more_l, label %panel, label %depth_done
depth_done:
  %next_d = add i64 %d, %span
  %more_d = icmp ult i64 %next_d, %count
  br i1 %more_d, label %some_depth, label %end
end:
  ret void
}}
"""
