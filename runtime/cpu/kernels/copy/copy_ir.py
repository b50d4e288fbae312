"""Native code of copies between strided arrays: rows without gaps, single elements, and transposes tile by tile.

A copy walks all dimensions but the innermost ones like an odometer, whatever their number, and leaves these to one of
eight loops. Elements are bytes: one function serves all types of a width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.cache_lines_ir import IN_ORDER, LINE_BYTES, PAST_CACHES, before_line_ir
from runtime.cpu.kernels.copy.transpose_ir import far_transpose, near_transpose

FUNCTION = "spmd_copy"
#: Words of the record that hold the addresses of the first elements.
SOURCE_WORD, TARGET_WORD = 0, 1
#: Dimensions of the odometer at most.
RANK = 16
#: Bytes of elements that have code.
WIDTHS = (1, 2, 4, 8, 16)

_FIRST_DIMENSION = 7


class Innermost(Enum):
    """Operation at each position of the index counter, and the record's words 3 to 6."""

    ROWS = "rows"
    """Bytes of a row, which has no gaps on either side."""
    FILL = "fill"
    """Elements: one element is written again and again, side by side."""
    REVERSED = "reversed"
    """Elements: side by side in the target, in the source from the last one to the first."""
    STREAMED_REVERSED = "streamed reversed"
    """The same, of at most 8 bytes each, past the caches."""
    STRIDED = "strided"
    """Elements, bytes from one to the next in the source, in the target."""
    TRANSPOSE = "transpose"
    """i, j, bytes from i to i + 1 in the source, from j to j + 1 in the target: [i, j] without gaps in j to [j, i]."""
    FAR_TRANSPOSE = "far transpose"
    """The same words, for arrays that the near caches do not hold."""
    STREAMED_TRANSPOSE = "streamed transpose"
    """The same, past the caches: strides in the target are multiples of a line."""


#: Vectors of these are written here, or in the C library.
_AS_WRITTEN = (
    Innermost.ROWS,
    Innermost.TRANSPOSE,
    Innermost.FAR_TRANSPOSE,
    Innermost.STREAMED_TRANSPOSE,
    Innermost.STREAMED_REVERSED,
)
#: Their stores are in no order until the last one is done.
_STREAMED = (Innermost.STREAMED_TRANSPOSE, Innermost.STREAMED_REVERSED)


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
    if innermost is Innermost.TRANSPOSE:
        loop = near_transpose(width)
    elif innermost in (Innermost.FAR_TRANSPOSE, Innermost.STREAMED_TRANSPOSE):
        loop = far_transpose(width, streamed=innermost is Innermost.STREAMED_TRANSPOSE)
    elif innermost is Innermost.STREAMED_REVERSED:
        loop = _streamed_reversed(width)
    else:
        loop = _LOOPS[innermost].format(element=f"i{8 * width}")
    ordered = IN_ORDER if innermost in _STREAMED else ""
    return loop + _ODOMETER.replace("{{ordered}}", ordered)


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
  {{{{ordered}}}}
  ret void
}}
"""

_ROWS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @innermost(ptr %record, ptr %s, ptr %t) alwaysinline {{
  %bytes = call i64 @word(ptr %record, i64 3)
  call void @llvm.memcpy.p0.p0.i64(ptr %t, ptr %s, i64 %bytes, i1 false)
  ret void
}}
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


def _streamed_reversed(width: int) -> str:
    """Line by line of the target; what is in front of the first and behind the last one element by element."""
    n = LINE_BYTES // width
    return before_line_ir(width) + _STREAMED_REVERSED.format(
        element=f"i{8 * width}",
        vector=f"<{n} x i{8 * width}>",
        n=n,
        last=n - 1,
        order=f"<{n} x i32> <{', '.join(f'i32 {n - 1 - k}' for k in range(n))}>",
        line=LINE_BYTES,
        past_caches=PAST_CACHES,
    )


_STREAMED_REVERSED = """
define internal void @single(ptr %s, ptr %t, i64 %first, i64 %end) noinline {{
entry:
  %some = icmp ult i64 %first, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %back = sub nsw i64 0, %i
  %from = getelementptr {element}, ptr %s, i64 %back
  %to = getelementptr {element}, ptr %t, i64 %i
  %x = load {element}, ptr %from, align 1
  store {element} %x, ptr %to, align 1
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define internal void @innermost(ptr %record, ptr %s, ptr %t) {{
entry:
  %count = call i64 @word(ptr %record, i64 3)
  %before = call i64 @before_line(ptr %t, i64 %count)
  %left = sub i64 %count, %before
  %whole = and i64 %left, -{n}
  %end = add i64 %before, %whole
  call void @single(ptr %s, ptr %t, i64 0, i64 %before)
  %some = icmp ne i64 %whole, 0
  br i1 %some, label %line, label %rest
line:
  %i = phi i64 [ %before, %entry ], [ %next, %line ]
  %lowest = add i64 %i, {last}
  %back = sub nsw i64 0, %lowest
  %from = getelementptr {element}, ptr %s, i64 %back
  %to = getelementptr {element}, ptr %t, i64 %i
  %x = load {vector}, ptr %from, align 1
  %reversed = shufflevector {vector} %x, {vector} poison, {order}
  store {vector} %reversed, ptr %to, align {line}{past_caches}
  %next = add nuw nsw i64 %i, {n}
  %more = icmp ult i64 %next, %end
  br i1 %more, label %line, label %rest
rest:
  call void @single(ptr %s, ptr %t, i64 %end, i64 %count)
  ret void
}}
"""

_LOOPS = {
    Innermost.ROWS: _ROWS,
    Innermost.FILL: _FILL,
    Innermost.REVERSED: _REVERSED,
    Innermost.STRIDED: _STRIDED,
}
