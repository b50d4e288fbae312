"""Native code of gather and scatter: windows of one array at places that an index array names, and their other side.

The *far* array is the one that is indexed (gather's operand, scatter's result), the *near* array holds the windows one
after the other (gather's result, scatter's updates). One function per index type and element operation serves all
shapes; what it does is said by a record of words (``IndexedWords``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_reduction import combining_ir, element_of
from runtime.codegen.llvm_words import OFFSET, WORDS, digits, offset, wide_index
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

#: Dimensions over index vectors, and over a window, that the code counts in.
BATCH_RANK = 4
WINDOW_RANK = 4
FUNCTION = "spmd_indexed"


@dataclass(frozen=True, slots=True)
class GatherElements:
    """near = far, for elements of ``byte_size``."""

    byte_size: int


@dataclass(frozen=True, slots=True)
class ScatterElements:
    """far = near, for elements of ``byte_size``."""

    byte_size: int


@dataclass(frozen=True, slots=True)
class CombineElements:
    """far = far op near; floats narrower than f32 are combined in f32, which is then far's type. No complex numbers."""

    kind: PrimitiveType
    reduction: ReductionKind


Elements: TypeAlias = GatherElements | ScatterElements | CombineElements


@dataclass(frozen=True, slots=True)
class IndexedWords:
    """One gather or scatter: addresses and strides in bytes.

    batch: (size, stride in indices, in far, in near), slowest first. window: (size, stride in far, in near).
    components of an index vector: (bytes from its first, stride in far, largest start at which a window fits).
    """

    far: int
    near: int
    indices: int
    batch: Sequence[tuple[int, ...]]
    window: Sequence[tuple[int, ...]]
    components: Sequence[tuple[int, int, int]]

    def packed(self) -> list[int]:
        batch = [(1, 0, 0, 0)] * (BATCH_RANK - len(self.batch)) + list(self.batch)
        window = [(1, 0, 0)] * (WINDOW_RANK - len(self.window)) + list(self.window)
        counts, runs = 1, 1
        for size, *_ in batch:
            counts *= size
        for size, *_ in window[:-1]:
            runs *= size
        words = [self.far, self.near, self.indices, counts, runs, len(self.components)]
        return words + [word for part in (*batch, *window, *self.components) for word in part]


@cache
def indexed_code(index: PrimitiveType, elements: Elements) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(indexed_ir(index, elements), (FUNCTION,), level=2, unroll=False)


def indexed_ir(index: PrimitiveType, elements: Elements) -> str:
    gathers = isinstance(elements, GatherElements)
    functions, operation, near, far = _element_code(elements)
    runs = "\n".join(
        _RUN.format(
            name=name,
            far=far,
            near=near,
            far_step=far_step,
            near_step=near_step,
            body=operation,
        )
        for name, far_step, near_step in (
            ("run_packed", _bits(far) // 8, _bits(near) // 8),
            ("run_strided", "%far_stride", "%near_stride"),
        )
    )
    return (
        WORDS
        + OFFSET
        + functions
        + runs
        + _INDEXED.format(
            name=FUNCTION,
            index=f"i{index.byte_size * 8}",
            extended=wide_index(index),
            placed=_CLAMPED if gathers else _INSIDE,
            vector_digits="\n".join(
                [
                    digits("d", "%b", ["", "%size1", "%size2", "%size3"]),
                    offset("index_offset", "d", 7, BATCH_RANK),
                    offset("far_start", "d", 8, BATCH_RANK),
                    offset("near_offset", "d", 9, BATCH_RANK),
                ]
            ),
            run_digits=digits("w", "%r", ["", "%window1", "%window2"]),
            far_bytes=_bits(far) // 8,
            near_bytes=_bits(near) // 8,
        )
    )


def _bits(stored: str) -> int:
    return {"half": 16, "float": 32, "double": 64}.get(stored) or int(stored[1:])


def _element_code(elements: Elements) -> tuple[str, str, str, str]:
    """Functions, what is done to %far_i and %near_i, and the types that lie in near and in far."""
    if not isinstance(elements, CombineElements):
        stored = f"i{elements.byte_size * 8}"
        source, target = (
            ("far", "near") if isinstance(elements, GatherElements) else ("near", "far")
        )
        align = min(elements.byte_size, 8)
        body = (
            f"%value = load {stored}, ptr %{source}_i, align {align}\n"
            f"  store {stored} %value, ptr %{target}_i, align {align}"
        )
        return "", body, stored, stored
    dtype = elements.kind.numpy
    element = element_of(dtype)
    functions = "\n".join(combining_ir(dtype, elements.reduction))
    body = (
        f"%a = load {element.wide}, ptr %far_i\n"
        f"  %b_stored = load {element.stored}, ptr %near_i\n"
        f"  %b = call {element.wide} @widen({element.stored} %b_stored)\n"
        f"  %r = call {element.wide} @combine({element.wide} %a, {element.wide} %b)\n"
        f"  store {element.wide} %r, ptr %far_i"
    )
    return functions, body, element.stored, element.wide


_RUN = """
define internal void @{name}(
    ptr noalias %far, i64 %far_stride, ptr noalias %near, i64 %near_stride, i64 %count) alwaysinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %far_way = mul i64 %i, {far_step}
  %near_way = mul i64 %i, {near_step}
  %far_i = getelementptr i8, ptr %far, i64 %far_way
  %near_i = getelementptr i8, ptr %near, i64 %near_way
  {body}
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""

_CLAMPED = """%not_below = call i64 @llvm.smax.i64(i64 %start_index, i64 0)
  %placed = call i64 @llvm.smin.i64(i64 %not_below, i64 %limit)
  %still_inside = or i1 %inside, true"""

_INSIDE = """%placed = add i64 %start_index, 0
  %fits = icmp ule i64 %start_index, %limit
  %still_inside = and i1 %inside, %fits"""

_INDEXED = """
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define void @{name}(ptr %record) {{
entry:
  %far = call ptr @pointer(ptr %record, i64 0)
  %near = call ptr @pointer(ptr %record, i64 1)
  %indices = call ptr @pointer(ptr %record, i64 2)
  %count = call i64 @word(ptr %record, i64 3)
  %runs = call i64 @word(ptr %record, i64 4)
  %components = call i64 @word(ptr %record, i64 5)
  %size1 = call i64 @word(ptr %record, i64 10)
  %size2 = call i64 @word(ptr %record, i64 14)
  %size3 = call i64 @word(ptr %record, i64 18)
  %window1 = call i64 @word(ptr %record, i64 25)
  %window2 = call i64 @word(ptr %record, i64 28)
  %run_elements = call i64 @word(ptr %record, i64 31)
  %run_far = call i64 @word(ptr %record, i64 32)
  %run_near = call i64 @word(ptr %record, i64 33)
  %far_packed = icmp eq i64 %run_far, {far_bytes}
  %near_packed = icmp eq i64 %run_near, {near_bytes}
  %packed = and i1 %far_packed, %near_packed
  br label %vector
vector:
  %b = phi i64 [ 0, %entry ], [ %next_b, %vector_done ]
{vector_digits}
  %from = getelementptr i8, ptr %indices, i64 %index_offset
  %has_components = icmp ne i64 %components, 0
  br i1 %has_components, label %component, label %placed_window
component:
  %c = phi i64 [ 0, %vector ], [ %next_c, %component ]
  %far_so_far = phi i64 [ %far_start, %vector ], [ %far_next, %component ]
  %inside = phi i1 [ true, %vector ], [ %still_inside, %component ]
  %three = mul i64 %c, 3
  %number = add i64 %three, 34
  %stride_number = add i64 %three, 35
  %limit_number = add i64 %three, 36
  %component_offset = call i64 @word(ptr %record, i64 %number)
  %stride = call i64 @word(ptr %record, i64 %stride_number)
  %limit = call i64 @word(ptr %record, i64 %limit_number)
  %place = getelementptr i8, ptr %from, i64 %component_offset
  %value = load {index}, ptr %place
  {extended}
  {placed}
  %way = mul i64 %placed, %stride
  %far_next = add i64 %far_so_far, %way
  %next_c = add i64 %c, 1
  %more_components = icmp ult i64 %next_c, %components
  br i1 %more_components, label %component, label %all_components
all_components:
  br i1 %still_inside, label %placed_window, label %vector_done
placed_window:
  %far_offset = phi i64 [ %far_start, %vector ], [ %far_next, %all_components ]
  br label %run
run:
  %r = phi i64 [ 0, %placed_window ], [ %next_r, %run_done ]
{run_digits}
  %far_way = call i64 @offset(ptr %record, i64 23, i64 3, i64 %w0, i64 %w1, i64 %w2, i64 0)
  %near_way = call i64 @offset(ptr %record, i64 24, i64 3, i64 %w0, i64 %w1, i64 %w2, i64 0)
  %far_at = add i64 %far_offset, %far_way
  %near_at = add i64 %near_offset, %near_way
  %far_run = getelementptr i8, ptr %far, i64 %far_at
  %near_run = getelementptr i8, ptr %near, i64 %near_at
  br i1 %packed, label %packed_run, label %strided_run
packed_run:
  call void @run_packed(ptr %far_run, i64 0, ptr %near_run, i64 0, i64 %run_elements)
  br label %run_done
strided_run:
  call void @run_strided(ptr %far_run, i64 %run_far, ptr %near_run, i64 %run_near, i64 %run_elements)
  br label %run_done
run_done:
  %next_r = add i64 %r, 1
  %more_runs = icmp ult i64 %next_r, %runs
  br i1 %more_runs, label %run, label %vector_done
vector_done:
  %next_b = add i64 %b, 1
  %more = icmp ult i64 %next_b, %count
  br i1 %more, label %vector, label %end
end:
  ret void
}}
"""
