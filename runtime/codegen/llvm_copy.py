"""Native code of copies between strided arrays: rows without gaps, single elements, and transposes tile by tile.

A copy walks all dimensions but the innermost ones like an odometer, whatever their number, and leaves these to one of
five loops. Elements are bytes: one function serves all types of a width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_passes import Passes
from runtime.codegen.llvm_words import WORDS

FUNCTION = "spmd_copy"
#: Words of the record that hold the addresses of the first elements.
SOURCE_WORD, TARGET_WORD = 0, 1
#: Dimensions of the odometer at most.
RANK = 16
#: Bytes of elements that have code.
WIDTHS = (1, 2, 4, 8, 16)

_FIRST_DIMENSION = 7
#: A transpose goes through squares of so many elements each way: runs of some lines, on pages that stay in the TLB.
_SQUARE = 32


class Innermost(Enum):
    """What is done at each position of the odometer, and the record's words 3 to 6."""

    ROWS = "rows"
    """Bytes of a row, which has no gaps on either side."""
    FILL = "fill"
    """Elements: one element is written again and again, side by side."""
    REVERSED = "reversed"
    """Elements: side by side in the target, in the source from the last one to the first."""
    STRIDED = "strided"
    """Elements, bytes from one to the next in the source, in the target."""
    TRANSPOSE = "transpose"
    """i, j, bytes from i to i + 1 in the source, from j to j + 1 in the target: [i, j] without gaps in j to [j, i]."""


#: Vectors of these are written here, or in the C library.
_AS_WRITTEN = (Innermost.ROWS, Innermost.TRANSPOSE)


@dataclass(frozen=True, slots=True)
class CopyWords:
    """``dimensions`` of the odometer: (size, stride in the source, in the target), the slowest first."""

    source: int
    target: int
    innermost: Sequence[int]
    dimensions: Sequence[tuple[int, int, int]]

    def packed(self) -> list[int]:
        missing = _FIRST_DIMENSION - 3 - len(self.innermost)
        words = [self.source, self.target, len(self.dimensions), *self.innermost, *[0] * missing]
        return words + [word for dimension in self.dimensions for word in dimension]


@cache
def copy_code(innermost: Innermost, width: int) -> NativeLibrary:
    """``FUNCTION`` for elements of ``width`` bytes: takes the address of packed words."""
    ir = WORDS + copy_ir(innermost, width)
    passes = Passes.TIDY if innermost in _AS_WRITTEN else Passes.VECTORIZE
    return host_jit().compile(ir, (FUNCTION,), passes=passes)


def copy_ir(innermost: Innermost, width: int) -> str:
    """``FUNCTION`` and what it calls; to stand behind WORDS."""
    element = f"i{8 * width}"
    loop = {
        Innermost.ROWS: _ROWS,
        Innermost.FILL: _FILL.format(element=element),
        Innermost.REVERSED: _REVERSED.format(element=element),
        Innermost.STRIDED: _STRIDED.format(element=element),
        Innermost.TRANSPOSE: _transpose(element, width),
    }[innermost]
    return loop + _ODOMETER


_ODOMETER = f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @{FUNCTION}(ptr %record) {{
entry:
  %digits = alloca [{RANK} x i64], align 64
  %source = call ptr @pointer(ptr %record, i64 {SOURCE_WORD})
  %target = call ptr @pointer(ptr %record, i64 {TARGET_WORD})
  %rank = call i64 @word(ptr %record, i64 2)
  %dimensions = getelementptr i64, ptr %record, i64 {_FIRST_DIMENSION}
  %digit_bytes = mul i64 %rank, 8
  call void @llvm.memset.p0.i64(ptr %digits, i8 0, i64 %digit_bytes, i1 false)
  br label %position
position:
  %s = phi ptr [ %source, %entry ], [ %s_next, %step ]
  %t = phi ptr [ %target, %entry ], [ %t_next, %step ]
  call void @innermost(ptr %record, ptr %s, ptr %t)
  br label %dimension
dimension:
  %d = phi i64 [ %rank, %position ], [ %e, %wrap ]
  %s_d = phi ptr [ %s, %position ], [ %s_first, %wrap ]
  %t_d = phi ptr [ %t, %position ], [ %t_first, %wrap ]
  %all = icmp eq i64 %d, 0
  br i1 %all, label %end, label %digit
digit:
  %e = sub i64 %d, 1
  %words = getelementptr [3 x i64], ptr %dimensions, i64 %e
  %size = call i64 @word(ptr %words, i64 0)
  %s_stride = call i64 @word(ptr %words, i64 1)
  %t_stride = call i64 @word(ptr %words, i64 2)
  %slot = getelementptr i64, ptr %digits, i64 %e
  %now = load i64, ptr %slot
  %following = add i64 %now, 1
  %full = icmp eq i64 %following, %size
  br i1 %full, label %wrap, label %step
wrap:
  store i64 0, ptr %slot
  %s_way = mul i64 %now, %s_stride
  %t_way = mul i64 %now, %t_stride
  %s_back = sub i64 0, %s_way
  %t_back = sub i64 0, %t_way
  %s_first = getelementptr i8, ptr %s_d, i64 %s_back
  %t_first = getelementptr i8, ptr %t_d, i64 %t_back
  br label %dimension
step:
  store i64 %following, ptr %slot
  %s_next = getelementptr i8, ptr %s_d, i64 %s_stride
  %t_next = getelementptr i8, ptr %t_d, i64 %t_stride
  br label %position
end:
  ret void
}}
"""

_ROWS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @innermost(ptr %record, ptr %s, ptr %t) alwaysinline {
  %bytes = call i64 @word(ptr %record, i64 3)
  call void @llvm.memcpy.p0.p0.i64(ptr %t, ptr %s, i64 %bytes, i1 false)
  ret void
}
"""

_FILL = """
define internal void @innermost(ptr %record, ptr %s, ptr %t) alwaysinline {{
entry:
  %count = call i64 @word(ptr %record, i64 3)
  %x = load {element}, ptr %s, align 1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %to = getelementptr {element}, ptr %t, i64 %i
  store {element} %x, ptr %to, align 1
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""

_REVERSED = """
define internal void @innermost(ptr noalias %record, ptr noalias %s, ptr noalias %t) alwaysinline {{
entry:
  %count = call i64 @word(ptr %record, i64 3)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %back = sub nsw i64 0, %i
  %from = getelementptr {element}, ptr %s, i64 %back
  %to = getelementptr {element}, ptr %t, i64 %i
  %x = load {element}, ptr %from, align 1
  store {element} %x, ptr %to, align 1
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""

_STRIDED = """
define internal void @innermost(ptr %record, ptr %s, ptr %t) alwaysinline {{
entry:
  %count = call i64 @word(ptr %record, i64 3)
  %s_stride = call i64 @word(ptr %record, i64 4)
  %t_stride = call i64 @word(ptr %record, i64 5)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s_way = mul i64 %i, %s_stride
  %t_way = mul i64 %i, %t_stride
  %from = getelementptr i8, ptr %s, i64 %s_way
  %to = getelementptr i8, ptr %t, i64 %t_way
  %x = load {element}, ptr %from, align 1
  store {element} %x, ptr %to, align 1
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def _transpose(element: str, width: int) -> str:
    """Blocks of two tiles each way, a tile of n vectors of n elements; what is left at two sides goes singly.

    A block has whole lines of the cache on both sides. A tile's vectors are transposed by interleaving vector r with
    vector r + n/2, log2(n) times.
    """
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
    halves = [
        ", ".join(f"i32 {half * n // 2 + k // 2 + (k % 2) * n}" for k in range(n))
        for half in (0, 1)
    ]
    for stage in range(1, n.bit_length()):
        interleaved = []
        for r in range(n // 2):
            for half, order in enumerate(halves):
                name = f"%v{stage}_{2 * r + half}"
                lines.append(
                    f"  {name} = shufflevector {vector} {rows[r]}, {vector} {rows[r + n // 2]}, "
                    f"<{n} x i32> <{order}>"
                )
                interleaved.append(name)
        rows = interleaved
    for c in range(n):
        lines += [
            f"  %t{c} = getelementptr i8, ptr %t, i64 %t_way{c}",
            f"  store {vector} {rows[c]}, ptr %t{c}, align 1",
        ]
    ways = [f"  %s_way{r} = mul i64 %s_stride, {r}" for r in range(n)]
    ways += [f"  %t_way{r} = mul i64 %t_stride, {r}" for r in range(n)]
    return _TRANSPOSE.format(
        element=element,
        width=width,
        n=n,
        block=2 * n,
        square=_SQUARE,
        tile="\n".join([*ways, *lines]),
    )


_TRANSPOSE = """
declare i64 @llvm.umin.i64(i64, i64)

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

define internal ptr @at(ptr %base, i64 %packed, i64 %strided, i64 %stride) alwaysinline {{
  %bytes = mul i64 %packed, {width}
  %way = mul i64 %strided, %stride
  %offset = add i64 %bytes, %way
  %place = getelementptr i8, ptr %base, i64 %offset
  ret ptr %place
}}

; elements [i, j] of i_first <= i < i_end, j_first <= j < j_end
define internal void @edge(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride,
                           i64 %i_first, i64 %i_end, i64 %j_first, i64 %j_end) noinline {{
entry:
  %some_i = icmp ult i64 %i_first, %i_end
  %some_j = icmp ult i64 %j_first, %j_end
  %some = and i1 %some_i, %some_j
  br i1 %some, label %row, label %end
row:
  %j = phi i64 [ %j_first, %entry ], [ %next_j, %row_done ]
  br label %element
element:
  %i = phi i64 [ %i_first, %row ], [ %next_i, %element ]
  %from = call ptr @at(ptr %s, i64 %j, i64 %i, i64 %s_stride)
  %to = call ptr @at(ptr %t, i64 %i, i64 %j, i64 %t_stride)
  %x = load {element}, ptr %from, align 1
  store {element} %x, ptr %to, align 1
  %next_i = add i64 %i, 1
  %more_i = icmp ult i64 %next_i, %i_end
  br i1 %more_i, label %element, label %row_done
row_done:
  %next_j = add i64 %j, 1
  %more_j = icmp ult i64 %next_j, %j_end
  br i1 %more_j, label %row, label %end
end:
  ret void
}}

define internal void @innermost(ptr %record, ptr %s, ptr %t) {{
entry:
  %i_count = call i64 @word(ptr %record, i64 3)
  %j_count = call i64 @word(ptr %record, i64 4)
  %s_stride = call i64 @word(ptr %record, i64 5)
  %t_stride = call i64 @word(ptr %record, i64 6)
  %i_tiled = and i64 %i_count, -{block}
  %j_tiled = and i64 %j_count, -{block}
  call void @edge(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 %i_tiled, i64 %i_count, i64 0, i64 %j_count)
  call void @edge(ptr %s, i64 %s_stride, ptr %t, i64 %t_stride, i64 0, i64 %i_tiled, i64 %j_tiled, i64 %j_count)
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
