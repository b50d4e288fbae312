"""LLVM IR of the step that moves bytes one place on along several places: a permute over its operands.

A block is in registers between the place that it leaves and the next one, so nothing is staged: what a place held is
read before what goes there is written.
"""

from __future__ import annotations

#: What is moved at once, largest first: LLVM's type, bytes.
_UNITS = {"blocks": ("<256 x i8>", 256), "words": ("i64", 8), "singles": ("i8", 1)}


def rotate_ir() -> str:
    """The step function spmd_rotate_bytes, after WORDS."""
    loops = [_LOOP.format(name=name, type=kind, step=size) for name, (kind, size) in _UNITS.items()]
    return "\n".join([*loops, _ROTATE])


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
