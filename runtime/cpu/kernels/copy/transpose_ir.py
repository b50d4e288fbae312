"""Native code of a transpose: what elements of arrays that lie in the near caches, and of larger ones, go through.

Both kinds give ``@innermost`` of copy_ir.py, which says what its record's words mean: [i, j], without gaps in j in
the source s, goes to [j, i], without gaps in i in the target t.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.cache_lines_ir import LINE_BYTES, PAST_CACHES, UMIN, before_line_ir

#: Elements each way of the squares of a near transpose: runs of some lines, on pages that stay in the TLB.
_SQUARE = 32
#: A far transpose goes along as many rows of the source at once as make a line of the target: streams, fetched ahead.
#: Where a stride is a multiple of so many bytes, what is fetched falls into a few sets of the nearest cache, and
#: is pushed out before it is used. There, it goes along more rows, for lines of the target that lie side by side.
_CROWDING_BYTES = 2048
_CROWDED_LINES = 4


def transpose_name(width: int) -> str:
    return f"transpose{width}"


@cache
def transpose_code(width: int) -> NativeLibrary:
    """``transpose_name(width)``, for other code to call: see transpose_ir."""
    name = transpose_name(width)
    ir = transpose_ir(width).replace(f"define internal void @{name}(", f"define void @{name}(")
    return host_jit().compile(UMIN + ir, (name,), passes=Passes.TIDY)


def near_transpose(width: int) -> str:
    """By squares: see transpose_ir."""
    return UMIN + transpose_ir(width) + _NEAR_INNERMOST.format(width=width)


def transpose_ir(width: int) -> str:
    """``@transpose{width}``(s, s_stride, t, t_stride, i_count, j_count): elements of so many bytes, in the near caches.

    Blocks of two tiles each way, a tile of n vectors of n elements; what is left at two sides goes singly.

    A block has whole lines of the cache on both sides. A tile's vectors are transposed by interleaving vector r with
    vector r + n/2, log2(n) times.
    """
    element = f"i{8 * width}"
    n = min(16, 32 // width)
    vector = f"<{n} x {element}>"
    lines = []
    rows = []
    for r in range(n):
        lines += [
            f"  %s{r} = getelementptr i8, ptr %s, i64 %s_way{r}",
            f"  %v0_{r} = load {vector}, ptr %s{r}, align 1",
        ]
        rows.append(f"%v0_{r}")
    for stage in range(1, n.bit_length()):
        rows = _interleaved(lines, rows, vector, n, f"%v{stage}_")
    for c in range(n):
        lines += [
            f"  %t{c} = getelementptr i8, ptr %t, i64 %t_way{c}",
            f"  store {vector} {rows[c]}, ptr %t{c}, align 1",
        ]
    ways = [f"  %s_way{r} = mul i64 %s_stride, {r}" for r in range(n)]
    ways += [f"  %t_way{r} = mul i64 %t_stride, {r}" for r in range(n)]
    text = (_SHARED + _NEAR).format(
        element=element,
        width=width,
        n=n,
        block=2 * n,
        square=_SQUARE,
        tile="\n".join([*ways, *lines]),
    )
    for name in ("tile", "block", "at", "edge", "rows", "columns", "transpose"):
        text = text.replace(f"@{name}(", f"@{name}{width}(")
    return text


def far_transpose(width: int, *, streamed: bool) -> str:
    """Tiles that fill whole lines of the target, each line touched once on either side: 16 vectors of 16 words.

    Lines of narrow elements become words of as many neighbouring rows first, in a buffer, which is several tiles. Those
    of 8 bytes have tiles of 8 vectors.

    Elements at the sides go singly: in front of the first whole line of both, and behind the last.
    streamed: lines go past the caches. The target's strides are multiples of a line then.
    """
    word = max(width, 4)
    n, parts = LINE_BYTES // word, word // width
    placed = f"align {LINE_BYTES}{PAST_CACHES}" if streamed else "align 1"
    return before_line_ir(width) + (_SHARED + _FAR).format(
        element=f"i{8 * width}",
        width=width,
        edge=LINE_BYTES // width,
        strip=_CROWDED_LINES * LINE_BYTES // width,
        crowding=_CROWDING_BYTES - 1,
        buffer=parts * n * LINE_BYTES,
        tile=tile_ir("tile", n, word, placed),
        block=_WIDE_BLOCK if parts == 1 else _narrow_block(width, parts, n),
    )


def tile_ir(name: str, n: int, word: int, placed: str, inlined: str = "alwaysinline") -> str:
    """``@name``, which transposes n vectors of n words of so many bytes; ``placed``: how the target's are stored."""
    vector = f"<{n} x i{8 * word}>"
    lines: list[str] = []
    for r in range(n):
        lines += [
            f"  %s_way{r} = mul i64 %s_stride, {r}",
            f"  %s{r} = getelementptr i8, ptr %s, i64 %s_way{r}",
            f"  %v0_{r} = load {vector}, ptr %s{r}, align 1",
        ]
    rows = [f"%v0_{r}" for r in range(n)]
    for stage in range(1, n.bit_length()):
        rows = _interleaved(lines, rows, vector, n, f"%v{stage}_")
    for c in range(n):
        lines += [
            f"  %t_way{c} = mul i64 %t_stride, {c}",
            f"  %t{c} = getelementptr i8, ptr %t, i64 %t_way{c}",
            f"  store {vector} {rows[c]}, ptr %t{c}, {placed}",
        ]
    head = f"define internal void @{name}(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride)"
    return "\n".join([f"{head} {inlined} {{", *lines, "  ret void", "}"])


def _narrow_block(width: int, parts: int, n: int) -> str:
    """Element c of ``parts`` rows makes word c of a line of the buffer, whose tiles are words of neighbouring c."""
    vector = f"<{LINE_BYTES // width} x i{8 * width}>"
    lines: list[str] = []
    for r in range(parts):
        lines += [
            f"  %r{r} = add i64 %row, {r}",
            f"  %from{r} = call ptr @at(ptr %s, i64 0, i64 %r{r}, i64 %s_stride)",
            f"  %e0_{r} = load {vector}, ptr %from{r}, align 1",
        ]
    rows = [f"%e0_{r}" for r in range(parts)]
    for stage in range(1, parts.bit_length()):
        rows = _interleaved(lines, rows, vector, LINE_BYTES // width, f"%e{stage}_")
    for part in range(parts):
        lines += [
            f"  %to{part} = getelementptr i8, ptr %line, i64 {part * n * LINE_BYTES}",
            f"  store {vector} {rows[part]}, ptr %to{part}, align {LINE_BYTES}",
        ]
    return _NARROW_BLOCK.format(
        words="\n".join(lines), parts=parts, n=n, line=LINE_BYTES, tile=n * LINE_BYTES
    )


def _interleaved(lines: list[str], rows: list[str], vector: str, n: int, name: str) -> list[str]:
    """Vectors r and r + half of ``rows``, element by element in turn: two vectors for each pair of them."""
    halves = [
        ", ".join(f"i32 {half * n // 2 + k // 2 + (k % 2) * n}" for k in range(n))
        for half in (0, 1)
    ]
    results = []
    for r in range(len(rows) // 2):
        for half, order in enumerate(halves):
            results.append(f"{name}{2 * r + half}")
            lines.append(
                f"  {results[-1]} = shufflevector {vector} {rows[r]}, {vector} {rows[r + len(rows) // 2]}, "
                f"<{n} x i32> <{order}>"
            )
    return results


_SHARED = """
define internal ptr @at(ptr %base, i64 %packed, i64 %strided, i64 %stride) alwaysinline {{
  %bytes = mul i64 %packed, {width}
  %way = mul i64 %strided, %stride
  %offset = add i64 %bytes, %way
  %place = getelementptr i8, ptr %base, i64 %offset
  ret ptr %place
}}

; elements [a, b] of a_first <= a < a_end, b_first <= b < b_end, b the fewer
define internal void @edge(ptr %s, i64 %s_a, i64 %s_b, ptr %t, i64 %t_a, i64 %t_b,
                           i64 %a_first, i64 %a_end, i64 %b_first, i64 %b_end) noinline {{
entry:
  %some_a = icmp ult i64 %a_first, %a_end
  %some_b = icmp ult i64 %b_first, %b_end
  %some = and i1 %some_a, %some_b
  br i1 %some, label %row, label %end
row:
  %a = phi i64 [ %a_first, %entry ], [ %next_a, %row_done ]
  %s_row_way = mul i64 %a, %s_a
  %t_row_way = mul i64 %a, %t_a
  %s_row = getelementptr i8, ptr %s, i64 %s_row_way
  %t_row = getelementptr i8, ptr %t, i64 %t_row_way
  br label %element
element:
  %b = phi i64 [ %b_first, %row ], [ %next_b, %element ]
  %s_way = mul i64 %b, %s_b
  %t_way = mul i64 %b, %t_b
  %from = getelementptr i8, ptr %s_row, i64 %s_way
  %to = getelementptr i8, ptr %t_row, i64 %t_way
  %x = load {element}, ptr %from, align 1
  store {element} %x, ptr %to, align 1
  %next_b = add i64 %b, 1
  %more_b = icmp ult i64 %next_b, %b_end
  br i1 %more_b, label %element, label %row_done
row_done:
  %next_a = add i64 %a, 1
  %more_a = icmp ult i64 %next_a, %a_end
  br i1 %more_a, label %row, label %end
end:
  ret void
}}

define internal void @rows(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride,
                           i64 %i_first, i64 %i_end, i64 %j_first, i64 %j_end) alwaysinline {{
  call void @edge(ptr %s, i64 {width}, i64 %s_stride, ptr %t, i64 %t_stride, i64 {width},
                  i64 %j_first, i64 %j_end, i64 %i_first, i64 %i_end)
  ret void
}}

define internal void @columns(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride,
                              i64 %i_first, i64 %i_end, i64 %j_first, i64 %j_end) alwaysinline {{
  call void @edge(ptr %s, i64 %s_stride, i64 {width}, ptr %t, i64 {width}, i64 %t_stride,
                  i64 %i_first, i64 %i_end, i64 %j_first, i64 %j_end)
  ret void
}}
"""

_NEAR = """
define internal void @tile(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride) alwaysinline {{
{tile}
  ret void
}}

define internal void @block(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride) alwaysinline {{
entry:
  br label %tile
tile: ; a loop: LLVM takes long for a tile's code
  %b = phi i64 [ 0, %entry ], [ %next_b, %tile ]
  %b_low = and i64 %b, 1
  %b_high = lshr i64 %b, 1
  %down = mul i64 %b_low, {n}
  %along = mul i64 %b_high, {n}
  %from_b = call ptr @at(ptr %s, i64 %along, i64 %down, i64 %s_stride)
  %to_b = call ptr @at(ptr %t, i64 %down, i64 %along, i64 %t_stride)
  call void @tile(ptr %from_b, i64 %s_stride, ptr %to_b, i64 %t_stride)
  %next_b = add nuw nsw i64 %b, 1
  %more_b = icmp ult i64 %next_b, 4
  br i1 %more_b, label %tile, label %end
end:
  ret void
}}

define internal void @transpose(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 %i_count, i64 %j_count) {{
entry:
  %i_tiled = and i64 %i_count, -{block}
  %j_tiled = and i64 %j_count, -{block}
  call void @rows(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 %i_tiled, i64 %i_count, i64 0, i64 %j_count)
  call void @columns(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 0, i64 %i_tiled, i64 %j_tiled, i64 %j_count)
  %some_i = icmp ne i64 %i_tiled, 0
  %some_j = icmp ne i64 %j_tiled, 0
  %some = and i1 %some_i, %some_j
  br i1 %some, label %i_square, label %end
i_square:
  %p = phi i64 [ 0, %entry ], [ %p_end, %j_squares_done ]
  %p_full = add i64 %p, {square}
  %p_end = call i64 @llvm.umin.i64(i64 %p_full, i64 %i_tiled)
  br label %j_square
j_square:
  %q = phi i64 [ 0, %i_square ], [ %q_end, %square_done ]
  %q_full = add i64 %q, {square}
  %q_end = call i64 @llvm.umin.i64(i64 %q_full, i64 %j_tiled)
  br label %column
column:
  %j = phi i64 [ %q, %j_square ], [ %next_j, %column_done ]
  br label %block
block:
  %i = phi i64 [ %p, %column ], [ %next_i, %block ]
  %from = call ptr @at(ptr %s, i64 %j, i64 %i, i64 %s_stride)
  %to = call ptr @at(ptr %t, i64 %i, i64 %j, i64 %t_stride)
  call void @block(ptr %from, i64 %s_stride, ptr %to, i64 %t_stride)
  %next_i = add i64 %i, {block}
  %more_i = icmp ult i64 %next_i, %p_end
  br i1 %more_i, label %block, label %column_done
column_done:
  %next_j = add i64 %j, {block}
  %more_j = icmp ult i64 %next_j, %q_end
  br i1 %more_j, label %column, label %square_done
square_done:
  %more_q = icmp ult i64 %q_end, %j_tiled
  br i1 %more_q, label %j_square, label %j_squares_done
j_squares_done:
  %more_p = icmp ult i64 %p_end, %i_tiled
  br i1 %more_p, label %i_square, label %end
end:
  ret void
}}
"""

_WIDE_BLOCK = """  call void @tile(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride)
  br label %end"""
_NARROW_BLOCK = """  br label %words
words:
  %k = phi i64 [ 0, %entry ], [ %next_k, %words ]
  %row = mul nuw nsw i64 %k, {parts}
  %k_bytes = mul nuw nsw i64 %k, {line}
  %line = getelementptr i8, ptr %buffer, i64 %k_bytes
{words}
  %next_k = add nuw nsw i64 %k, 1
  %more_k = icmp ult i64 %next_k, {n}
  br i1 %more_k, label %words, label %part
part:
  %h = phi i64 [ 0, %words ], [ %next_h, %part ]
  %h_bytes = mul nuw nsw i64 %h, {tile}
  %h_column = mul nuw nsw i64 %h, {n}
  %h_from = getelementptr i8, ptr %buffer, i64 %h_bytes
  %h_to = call ptr @at(ptr %t, i64 0, i64 %h_column, i64 %t_stride)
  call void @tile(ptr %h_from, i64 {line}, ptr %h_to, i64 %t_stride)
  %next_h = add nuw nsw i64 %h, 1
  %more_h = icmp ult i64 %next_h, {parts}
  br i1 %more_h, label %part, label %end"""

_NEAR_INNERMOST = """
define internal void @innermost(ptr %record, ptr %s, ptr %t) {{
  %i_count = call i64 @word(ptr %record, i64 3)
  %j_count = call i64 @word(ptr %record, i64 4)
  %s_stride = call i64 @word(ptr %record, i64 5)
  %t_stride = call i64 @word(ptr %record, i64 6)
  call void @transpose{width}(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 %i_count, i64 %j_count)
  ret void
}}
"""

_FAR = """
{tile}

define internal void @block(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, ptr %buffer) alwaysinline {{
entry:
{block}
end:
  ret void
}}

define internal void @innermost(ptr %record, ptr %s, ptr %t) {{
entry:
  %buffer = alloca [{buffer} x i8], align 64
  %i_count = call i64 @word(ptr %record, i64 3)
  %j_count = call i64 @word(ptr %record, i64 4)
  %s_stride = call i64 @word(ptr %record, i64 5)
  %t_stride = call i64 @word(ptr %record, i64 6)
  %i_before = call i64 @before_line(ptr %t, i64 %i_count)
  %j_before = call i64 @before_line(ptr %s, i64 %j_count)
  %i_left = sub i64 %i_count, %i_before
  %j_left = sub i64 %j_count, %j_before
  %i_whole = and i64 %i_left, -{edge}
  %j_whole = and i64 %j_left, -{edge}
  %i_tiled = add i64 %i_before, %i_whole
  %j_tiled = add i64 %j_before, %j_whole
  call void @rows(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 0, i64 %i_before, i64 0, i64 %j_count)
  call void @rows(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 %i_tiled, i64 %i_count, i64 0, i64 %j_count)
  call void @columns(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride,
                     i64 %i_before, i64 %i_tiled, i64 %j_tiled, i64 %j_count)
  call void @columns(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride,
                     i64 %i_before, i64 %i_tiled, i64 0, i64 %j_before)
  %some_i = icmp ne i64 %i_whole, 0
  %some_j = icmp ne i64 %j_whole, 0
  %some = and i1 %some_i, %some_j
  %s_over = and i64 %s_stride, {crowding}
  %t_over = and i64 %t_stride, {crowding}
  %over = call i64 @llvm.umin.i64(i64 %s_over, i64 %t_over)
  %crowded = icmp eq i64 %over, 0
  %strip = select i1 %crowded, i64 {strip}, i64 {edge}
  br i1 %some, label %strips, label %end
strips:
  %p = phi i64 [ %i_before, %entry ], [ %p_end, %strip_done ]
  %p_full = add i64 %p, %strip
  %p_end = call i64 @llvm.umin.i64(i64 %p_full, i64 %i_tiled)
  br label %along
along: ; a line of each row of the strip
  %j = phi i64 [ %j_before, %strips ], [ %next_j, %along_done ]
  br label %block
block:
  %i = phi i64 [ %p, %along ], [ %next_i, %block ]
  %from = call ptr @at(ptr %s, i64 %j, i64 %i, i64 %s_stride)
  %to = call ptr @at(ptr %t, i64 %i, i64 %j, i64 %t_stride)
  call void @block(ptr %from, i64 %s_stride, ptr %to, i64 %t_stride, ptr %buffer)
  %next_i = add i64 %i, {edge}
  %more_i = icmp ult i64 %next_i, %p_end
  br i1 %more_i, label %block, label %along_done
along_done:
  %next_j = add i64 %j, {edge}
  %more_j = icmp ult i64 %next_j, %j_tiled
  br i1 %more_j, label %along, label %strip_done
strip_done:
  %more_p = icmp ult i64 %p_end, %i_tiled
  br i1 %more_p, label %strips, label %end
end:
  ret void
}}
"""
