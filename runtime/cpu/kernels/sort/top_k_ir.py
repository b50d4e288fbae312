"""Native code of the first few elements of a row in the order of a key: a sorted list that better elements enter.

Most elements of a long row are no better than the worst one in the list. A block's best key, which vectors find, says
whether to look at its elements one by one.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.record_words import OFFSET, WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.sort.merge_sort_ir import output_ir, place_ir, rows_ir
from runtime.cpu.kernels.sort.radix_sort_ir import RadixForm
from runtime.cpu.kernels.sort.sort_key import key_ir

FUNCTION = "spmd_top"
#: Elements whose best key is looked at as one.
_BLOCK = 64


@cache
def top_code(form: RadixForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of SortWords; scratch: ``count`` keys, and 32-bit places."""
    return host_jit().compile(top_ir(form), (FUNCTION,))


def top_ir(form: RadixForm) -> str:
    key = form.key
    types = [stored_type(kind) for kind in form.kinds]
    shared = {"key": f"i{key.bits}"}
    return "\n".join(
        [
            WORDS,
            OFFSET,
            *key_ir(key),
            _LIST.format(**shared, element=types[key.operand]),
            rows_ir(
                FUNCTION,
                len(types),
                form.with_places,
                _ROW.format(
                    **shared,
                    x=f"x{key.operand}",
                    block=_BLOCK,
                    output=output_ir("block", place_ir("list"), types, form.with_places),
                ),
                scratch=("keys", "list"),
                before=_LAST.format(**shared),
            ),
        ]
    )


_LIST = """
declare {key} @llvm.umin.{key}({key}, {key})

define internal {key} @key_at(ptr %x, i64 %step, i64 %i) alwaysinline {{
  %way = mul i64 %i, %step
  %at = getelementptr i8, ptr %x, i64 %way
  %e = load {element}, ptr %at
  %k = call {key} @key({element} %e)
  ret {key} %k
}}

; the place of %k in the list, behind its equals; what is behind it moves on, and the last one out
define internal void @enter(ptr %keys, ptr %places, i64 %held, {key} %k, i64 %place) noinline {{
entry:
  br label %look
look:
  %n = phi i64 [ %held, %entry ], [ %before, %move ]
  %before = sub i64 %n, 1
  %at_front = icmp eq i64 %n, 0
  br i1 %at_front, label %put, label %compare
compare:
  %other_at = getelementptr {key}, ptr %keys, i64 %before
  %other = load {key}, ptr %other_at
  %worse = icmp ugt {key} %other, %k
  br i1 %worse, label %move, label %put
move:
  %other_place_at = getelementptr i32, ptr %places, i64 %before
  %other_place = load i32, ptr %other_place_at
  %key_to = getelementptr {key}, ptr %keys, i64 %n
  %place_to = getelementptr i32, ptr %places, i64 %n
  store {key} %other, ptr %key_to
  store i32 %other_place, ptr %place_to
  br label %look
put:
  %key_at = getelementptr {key}, ptr %keys, i64 %n
  %place_at = getelementptr i32, ptr %places, i64 %n
  %narrow = trunc i64 %place to i32
  store {key} %k, ptr %key_at
  store i32 %narrow, ptr %place_at
  ret void
}}"""

_ROW = """  br label %first
first:
  %f = phi i64 [ 0, %row ], [ %next_f, %first ]
  %f_key = call {key} @key_at(ptr %{x}, i64 %{x}_step, i64 %f)
  call void @enter(ptr %keys, ptr %list, i64 %f, {key} %f_key, i64 %f)
  %next_f = add nuw nsw i64 %f, 1
  %more_f = icmp ult i64 %next_f, %count
  br i1 %more_f, label %first, label %block
block:
  %begin = phi i64 [ %count, %first ], [ %block_end, %block_done ]
  %some = icmp ult i64 %begin, %size
  br i1 %some, label %look, label %output
look:
  %full_end = add nuw nsw i64 %begin, {block}
  %is_full = icmp ult i64 %full_end, %size
  %block_end = select i1 %is_full, i64 %full_end, i64 %size
  %bound = load {key}, ptr %last_at
  br label %best
best:
  %b = phi i64 [ %begin, %look ], [ %next_b, %best ]
  %so_far = phi {key} [ -1, %look ], [ %better, %best ]
  %b_key = call {key} @key_at(ptr %{x}, i64 %{x}_step, i64 %b)
  %better = call {key} @llvm.umin.{key}({key} %so_far, {key} %b_key)
  %next_b = add nuw nsw i64 %b, 1
  %more_b = icmp ult i64 %next_b, %block_end
  br i1 %more_b, label %best, label %found
found:
  %enters = icmp ult {key} %better, %bound
  br i1 %enters, label %each, label %block_done
each:
  %i = phi i64 [ %begin, %found ], [ %next_i, %each_done ]
  %i_key = call {key} @key_at(ptr %{x}, i64 %{x}_step, i64 %i)
  %worst = load {key}, ptr %last_at
  %i_enters = icmp ult {key} %i_key, %worst
  br i1 %i_enters, label %entering, label %each_done
entering:
  call void @enter(ptr %keys, ptr %list, i64 %last, {key} %i_key, i64 %i)
  br label %each_done
each_done:
  %next_i = add nuw nsw i64 %i, 1
  %more_i = icmp ult i64 %next_i, %block_end
  br i1 %more_i, label %each, label %block_done
block_done:
  br label %block
{output}"""

_LAST = """  %last = sub i64 %count, 1
  %last_at = getelementptr {key}, ptr %keys, i64 %last
"""
