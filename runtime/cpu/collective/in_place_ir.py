"""LLVM IR of the steps of collectives that work in place: two buffers exchange rows, or bytes move from place to place.

The second is a permute over its operands. A block is in registers between the place that it leaves and the next one, so
nothing is staged: what a place held is read before what goes there is written.
"""

from __future__ import annotations

from runtime.codegen.ir.record_words import WORDS

IN_PLACE_FUNCTIONS = ("spmd_swap_rows", "spmd_rotate_bytes")

#: What is moved at once, largest first: LLVM's type, bytes.
_UNITS = {"blocks": ("<256 x i8>", 256), "words": ("i64", 8), "singles": ("i8", 1)}


def in_place_ir() -> str:
    """Return a module with IN_PLACE_FUNCTIONS."""
    loops = [_LOOP.format(name=name, type=kind, step=size) for name, (kind, size) in _UNITS.items()]
    return "\n".join([WORDS, _SWAP, *loops, _ROTATE])


# From %begin on, as many whole units as there are before %end.
_LOOP = """
define internal void @rotate_{name}(ptr %places, i64 %count, i64 %begin, i64 %end, i1 %cycle) {{
entry:
  %last = sub i64 %count, 1
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %unit, label %done
unit:
  %offset = phi i64 [ %begin, %entry ], [ %next_offset, %moved ]
  %last_base = call ptr @pointer(ptr %places, i64 %last)
  %last_at = getelementptr i8, ptr %last_base, i64 %offset
  br i1 %cycle, label %wrap, label %place
wrap:
  %wrapped = load {type}, ptr %last_at, align 1
  br label %place
place:
  %i = phi i64 [ 0, %unit ], [ 0, %wrap ], [ %next, %place ]
  %carry = phi {type} [ zeroinitializer, %unit ], [ %wrapped, %wrap ], [ %held, %place ]
  %base = call ptr @pointer(ptr %places, i64 %i)
  %at = getelementptr i8, ptr %base, i64 %offset
  %held = load {type}, ptr %at, align 1
  store {type} %carry, ptr %at, align 1
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %place, label %moved
moved:
  %next_offset = add i64 %offset, {step}
  %left = icmp ult i64 %next_offset, %end
  br i1 %left, label %unit, label %done
done:
  ret void
}}
"""

# Record: function, places, how many, bytes of each, whether the first takes what the last held.
_ROTATE = """
define i64 @spmd_rotate_bytes(ptr %record, ptr %header, i64 %spins) {
  %places = call ptr @pointer(ptr %record, i64 1)
  %count = call i64 @word(ptr %record, i64 2)
  %bytes = call i64 @word(ptr %record, i64 3)
  %is_cycle = call i64 @word(ptr %record, i64 4)
  %cycle = icmp ne i64 %is_cycle, 0
  %blocks_end = and i64 %bytes, -256
  %words_end = and i64 %bytes, -8
  call void @rotate_blocks(ptr %places, i64 %count, i64 0, i64 %blocks_end, i1 %cycle)
  call void @rotate_words(ptr %places, i64 %count, i64 %blocks_end, i64 %words_end, i1 %cycle)
  call void @rotate_singles(ptr %places, i64 %count, i64 %words_end, i64 %bytes, i1 %cycle)
  ret i64 0
}
"""

# spmd_swap_rows: function, one, other, rows, bytes of a row, bytes from row to row. What is left of a row after blocks
# of 64 bytes goes by 8, then by single bytes.
_SWAP = """
define internal void @swap_row(ptr %one, ptr %other, i64 %bytes) alwaysinline {
entry:
  %blocks_end = and i64 %bytes, -64
  %words_end = and i64 %bytes, -8
  br label %blocks
blocks:
  %b = phi i64 [ 0, %entry ], [ %b_next, %block ]
  %block_left = icmp ult i64 %b, %blocks_end
  br i1 %block_left, label %block, label %words
block:
  %b_one = getelementptr i8, ptr %one, i64 %b
  %b_other = getelementptr i8, ptr %other, i64 %b
  %b_here = load <64 x i8>, ptr %b_one, align 1
  %b_there = load <64 x i8>, ptr %b_other, align 1
  store <64 x i8> %b_there, ptr %b_one, align 1
  store <64 x i8> %b_here, ptr %b_other, align 1
  %b_next = add i64 %b, 64
  br label %blocks
words:
  %w = phi i64 [ %b, %blocks ], [ %w_next, %word ]
  %word_left = icmp ult i64 %w, %words_end
  br i1 %word_left, label %word, label %singles
word:
  %w_one = getelementptr i8, ptr %one, i64 %w
  %w_other = getelementptr i8, ptr %other, i64 %w
  %w_here = load i64, ptr %w_one, align 1
  %w_there = load i64, ptr %w_other, align 1
  store i64 %w_there, ptr %w_one, align 1
  store i64 %w_here, ptr %w_other, align 1
  %w_next = add i64 %w, 8
  br label %words
singles:
  %s = phi i64 [ %w, %words ], [ %s_next, %single ]
  %single_left = icmp ult i64 %s, %bytes
  br i1 %single_left, label %single, label %end
single:
  %s_one = getelementptr i8, ptr %one, i64 %s
  %s_other = getelementptr i8, ptr %other, i64 %s
  %s_here = load i8, ptr %s_one
  %s_there = load i8, ptr %s_other
  store i8 %s_there, ptr %s_one
  store i8 %s_here, ptr %s_other
  %s_next = add i64 %s, 1
  br label %singles
end:
  ret void
}

define i64 @spmd_swap_rows(ptr %record, ptr %header, i64 %spins) {
entry:
  %one = call ptr @pointer(ptr %record, i64 1)
  %other = call ptr @pointer(ptr %record, i64 2)
  %rows = call i64 @word(ptr %record, i64 3)
  %bytes = call i64 @word(ptr %record, i64 4)
  %stride = call i64 @word(ptr %record, i64 5)
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %next, %row ]
  %offset = mul i64 %r, %stride
  %here = getelementptr i8, ptr %one, i64 %offset
  %there = getelementptr i8, ptr %other, i64 %offset
  call void @swap_row(ptr %here, ptr %there, i64 %bytes)
  %next = add i64 %r, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %row, label %end
end:
  ret i64 0
}
"""
