"""Native code that works out where a dynamic slice begins, and writes it into the record of the copy that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_words import WORDS, wide_index
from spmd.shape import PrimitiveType

FUNCTION = "spmd_place"


@dataclass(frozen=True, slots=True)
class PlaceWords:
    """``word``: the address that is written to. ``base``: where the slice begins if all starts are 0.

    starts: (address of an index, largest value it may have, bytes that a step of it goes); indices are clamped.
    """

    word: int
    base: int
    starts: Sequence[tuple[int, int, int]]

    def packed(self) -> list[int]:
        words = [self.word, self.base, len(self.starts)]
        return words + [word for start in self.starts for word in start]


@cache
def place_code(index: PrimitiveType) -> NativeLibrary:
    """``FUNCTION`` for starts of type ``index``: takes the address of packed words."""
    ir = _IR.format(name=FUNCTION, index=f"i{index.byte_size * 8}", widened=wide_index(index))
    return host_jit().compile(WORDS + ir, (FUNCTION,), level=2, unroll=False)


_IR = """
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define void @{name}(ptr %record) {{
entry:
  %word = call ptr @pointer(ptr %record, i64 0)
  %base = call i64 @word(ptr %record, i64 1)
  %count = call i64 @word(ptr %record, i64 2)
  %starts = getelementptr i64, ptr %record, i64 3
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %start ]
  %place = phi i64 [ %base, %entry ], [ %moved, %start ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %start, label %end
start:
  %words = getelementptr [3 x i64], ptr %starts, i64 %i
  %from = call ptr @pointer(ptr %words, i64 0)
  %limit = call i64 @word(ptr %words, i64 1)
  %stride = call i64 @word(ptr %words, i64 2)
  %value = load {index}, ptr %from
  {widened}
  %not_below = call i64 @llvm.smax.i64(i64 %start_index, i64 0)
  %clamped = call i64 @llvm.smin.i64(i64 %not_below, i64 %limit)
  %way = mul i64 %clamped, %stride
  %moved = add i64 %place, %way
  %next = add i64 %i, 1
  br label %look
end:
  store i64 %place, ptr %word
  ret void
}}
"""
