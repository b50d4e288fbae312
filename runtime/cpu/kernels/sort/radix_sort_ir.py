"""Native code of sort by a key that is a number: stable, a byte of the key after the other, the lowest first.

A pass counts on nothing but how many elements have each value of its byte, and all of these are counted at once,
beforehand; a byte that is the same in the whole row is passed over. One operand moves as it is, from its place over
scratch to the result's; several are sorted as records of key and place, and then follow their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.record_words import OFFSET, WORDS
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.sort.merge_sort_ir import output_ir, place_ir, rows_ir
from runtime.cpu.kernels.sort.sort_key import SortKey, key_ir
from spmd.shape import PrimitiveType

FUNCTION = "spmd_radix_sort"


@dataclass(frozen=True, slots=True)
class RadixForm:
    """``kinds`` of the operands. Without places and with one operand elements themselves are moved."""

    key: SortKey
    kinds: tuple[PrimitiveType, ...]
    with_places: bool

    @property
    def moves_elements(self) -> bool:
        return len(self.kinds) == 1 and not self.with_places

    @property
    def moved_bytes(self) -> int:
        """The bytes that each pass moves: an element, or a record of a 32-bit index and the key above it."""
        if self.moves_elements:
            return self.kinds[0].byte_size
        return 8 if self.key.bits <= 32 else 16


@cache
def radix_sort_code(form: RadixForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of SortWords: two scratch arrays of ``moved_bytes`` for each element."""
    return host_jit().compile(radix_sort_ir(form), (FUNCTION,))


def radix_sort_ir(form: RadixForm) -> str:
    key, size = form.key, form.moved_bytes
    types = [stored_type(kind) for kind in form.kinds]
    moved = types[0] if form.moves_elements else f"i{8 * size}"
    operand = key.operand
    shared = {
        "moved": moved,
        "align": min(size, 8),
        "size": size,
        "key": f"i{key.bits}",
        "bytes": key.bits // 8,
    }
    if form.moves_elements:
        digit = f"%key = call i{key.bits} @key({moved} %x)\n  %bits = {_widened(key.bits)}"
        row = _ELEMENTS
    else:
        above = 32 if key.bits <= 32 else 64
        digit = f"%shifted = lshr {moved} %x, {above}\n  %bits = " + (
            f"trunc {moved} %shifted to i64" if size == 16 else "add i64 %shifted, 0"
        )
        row = _RECORDS.format(
            **shared,
            element=types[operand],
            x=f"x{operand}",
            above=above,
            narrowed="add i128 %both, 0" if size == 16 else "trunc i128 %both to i64",
            output=output_ir(
                "sorting", place_ir("sorted", moved, ", align 8"), types, form.with_places
            ),
        )
    return "\n".join(
        [
            WORDS,
            OFFSET,
            *key_ir(key),
            _PASSES.format(
                **shared,
                digit=digit,
                target=_target(form.moves_elements),
                count_digits=_count_digits(key.bits // 8),
            ),
            rows_ir(FUNCTION, len(types), form.with_places, row),
        ]
    )


def _widened(bits: int) -> str:
    return "add i64 %key, 0" if bits == 64 else f"zext i{bits} %key to i64"


def _count_digits(count: int) -> str:
    """Lines that count each byte of %digits in a table of its own."""
    lines = []
    for b in range(count):
        lines += [
            f"  %rest{b} = lshr i64 %digits, {8 * b}",
            f"  %low{b} = and i64 %rest{b}, 255",
            f"  %slot{b} = getelementptr [256 x i32], ptr %counts, i64 {b}, i64 %low{b}",
            f"  %so_far{b} = load i32, ptr %slot{b}",
            f"  %one_more{b} = add i32 %so_far{b}, 1",
            f"  store i32 %one_more{b}, ptr %slot{b}",
        ]
    return "\n".join(lines)


def _target(moves_elements: bool) -> str:
    """Return IR of a pass's target: the result for the last pass over elements, else the scratch that it does not
    read."""
    if not moves_elements:
        return "%to = select i1 %in_one, ptr %other, ptr %one\n  %to_step = add i64 %own, 0"
    return (
        "%last = icmp eq i64 %left, 1\n"
        "  %aside = select i1 %in_one, ptr %other, ptr %one\n"
        "  %to = select i1 %last, ptr %y, ptr %aside\n"
        "  %to_step = select i1 %last, i64 %y_step, i64 %own"
    )


# @sort moves %n elements from %x: to %y, or to one of the two scratch arrays, which it returns.
_PASSES = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umax.i64(i64, i64)

define internal i64 @digits_of({moved} %x) alwaysinline {{
  {digit}
  ret i64 %bits
}}

define internal void @move(ptr %x, i64 %x_step, ptr %to, i64 %to_step, i64 %n, i64 %shift, ptr %counts) noinline {{
entry:
  br label %place
place:
  %value = phi i64 [ 0, %entry ], [ %next_value, %place ]
  %start = phi i32 [ 0, %entry ], [ %next_start, %place ]
  %count_at = getelementptr i32, ptr %counts, i64 %value
  %count = load i32, ptr %count_at
  store i32 %start, ptr %count_at
  %next_start = add i32 %start, %count
  %next_value = add i64 %value, 1
  %more_values = icmp ult i64 %next_value, 256
  br i1 %more_values, label %place, label %element
element:
  %i = phi i64 [ 0, %place ], [ %next, %element ]
  %from_way = mul i64 %i, %x_step
  %from = getelementptr i8, ptr %x, i64 %from_way
  %e = load {moved}, ptr %from, align {align}
  %digits = call i64 @digits_of({moved} %e)
  %shifted = lshr i64 %digits, %shift
  %digit = and i64 %shifted, 255
  %slot = getelementptr i32, ptr %counts, i64 %digit
  %at = load i32, ptr %slot
  %following = add i32 %at, 1
  store i32 %following, ptr %slot
  %at_wide = zext i32 %at to i64
  %to_way = mul i64 %at_wide, %to_step
  %target = getelementptr i8, ptr %to, i64 %to_way
  store {moved} %e, ptr %target, align {align}
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %element, label %end
end:
  ret void
}}

define internal ptr @sort(ptr %x, i64 %x_step, ptr %y, i64 %y_step, ptr %one, ptr %other, i64 %n) noinline {{
entry:
  %counts = alloca [{bytes} x [256 x i32]], align 64
  %active = alloca [{bytes} x i64], align 64
  %own = add i64 {size}, 0
  %table_bytes = mul i64 {bytes}, 1024
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 %table_bytes, i1 false)
  br label %count
count:
  %i = phi i64 [ 0, %entry ], [ %next_i, %count ]
  %way = mul i64 %i, %x_step
  %at = getelementptr i8, ptr %x, i64 %way
  %e = load {moved}, ptr %at, align {align}
  %digits = call i64 @digits_of({moved} %e)
{count_digits}
  %next_i = add nuw nsw i64 %i, 1
  %more_i = icmp ult i64 %next_i, %n
  br i1 %more_i, label %count, label %look
look:
  %k = phi i64 [ 0, %count ], [ %next_k, %look ]
  %passes = phi i64 [ 0, %count ], [ %more_passes, %look ]
  %k_shift = mul i64 %k, 8
  %k_digits = lshr i64 %digits, %k_shift
  %k_digit = and i64 %k_digits, 255
  %k_slot = getelementptr [256 x i32], ptr %counts, i64 %k, i64 %k_digit
  %alike = load i32, ptr %k_slot
  %alike_wide = zext i32 %alike to i64
  %differ = icmp ne i64 %alike_wide, %n
  %one_more = zext i1 %differ to i64
  %active_at = getelementptr i64, ptr %active, i64 %k
  store i64 %one_more, ptr %active_at
  %more_passes = add i64 %passes, %one_more
  %next_k = add nuw nsw i64 %k, 1
  %more_k = icmp ult i64 %next_k, {bytes}
  br i1 %more_k, label %look, label %begin
begin:
  %first_active = load i64, ptr %active
  %all_alike = icmp eq i64 %more_passes, 0
  %one_at_least = select i1 %all_alike, i64 1, i64 %first_active
  store i64 %one_at_least, ptr %active
  %all_passes = call i64 @llvm.umax.i64(i64 %more_passes, i64 1)
  br label %pass
pass:
  %p = phi i64 [ 0, %begin ], [ %next_p, %passed ]
  %source = phi ptr [ %x, %begin ], [ %now, %passed ]
  %step = phi i64 [ %x_step, %begin ], [ %now_step, %passed ]
  %left = phi i64 [ %all_passes, %begin ], [ %now_left, %passed ]
  %p_active_at = getelementptr i64, ptr %active, i64 %p
  %is_active = load i64, ptr %p_active_at
  %moves = icmp ne i64 %is_active, 0
  br i1 %moves, label %moving, label %passed
moving:
  %in_one = icmp eq ptr %source, %one
  {target}
  %p_counts = getelementptr [256 x i32], ptr %counts, i64 %p
  %p_shift = mul i64 %p, 8
  call void @move(ptr %source, i64 %step, ptr %to, i64 %to_step, i64 %n, i64 %p_shift, ptr %p_counts)
  br label %passed
passed:
  %now = phi ptr [ %source, %pass ], [ %to, %moving ]
  %now_step = phi i64 [ %step, %pass ], [ %to_step, %moving ]
  %now_left = sub i64 %left, %is_active
  %next_p = add nuw nsw i64 %p, 1
  %more_p = icmp ult i64 %next_p, {bytes}
  br i1 %more_p, label %pass, label %end
end:
  ret ptr %now
}}
"""

_ELEMENTS = (
    "  %sorted = call ptr @sort(ptr %x0, i64 %x0_step, ptr %y0, i64 %y0_step, ptr %one, ptr %other, i64 %size)\n"
    "  br label %row_done"
)

_RECORDS = """  br label %record_of
record_of:
  %i = phi i64 [ 0, %row ], [ %next_i, %record_of ]
  %way = mul i64 %i, %{x}_step
  %at = getelementptr i8, ptr %{x}, i64 %way
  %e = load {element}, ptr %at
  %k = call {key} @key({element} %e)
  %k_wide = zext {key} %k to i128
  %above = shl i128 %k_wide, {above}
  %i_wide = zext i64 %i to i128
  %both = or i128 %above, %i_wide
  %made = {narrowed}
  %to = getelementptr {moved}, ptr %one, i64 %i
  store {moved} %made, ptr %to, align 8
  %next_i = add nuw nsw i64 %i, 1
  %more_i = icmp ult i64 %next_i, %size
  br i1 %more_i, label %record_of, label %sorting
sorting:
  %sorted = call ptr @sort(ptr %one, i64 {size}, ptr null, i64 0, ptr %one, ptr %other, i64 %size)
  br label %output
{output}"""
