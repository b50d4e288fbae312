"""LLVM IR that reduces n arrays in their order, with the same bits as ``collectives.communicator.reduction``.

A kernel works through its rows in blocks that stay in the first-level cache. Within a block, values are combined one
source after the other in the accumulator's type; the last one is written to the first target, and from there copied to
the others. So an element of a target may lie on the same element of any source: it is written after all were read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from collectives.communicator.reduction import accumulator_type
from runtime.codegen.elements.small_floats import conversions
from runtime.codegen.llvm_words import WORDS
from spmd.device import ReductionKind
from spmd.ops.reduction import identity_value
from spmd.shape import PrimitiveType

#: Blocks of four sources and their total fit in a first-level cache together, several times over.
BLOCK_ELEMENTS = 1024

Dtype: TypeAlias = np.dtype[Any]


@dataclass(frozen=True)
class Element:
    """How elements of a type lie in memory and are computed with, as LLVM types and the bodies of two functions.

    ``widen`` turns ``%x``, a ``stored``, into ``%y``, a ``wide``; ``narrow`` turns it back, rounding once.
    ``parts``: how many of these make one element of the array (complex numbers have two).
    """

    stored: str
    wide: str
    widen: str = ""
    narrow: str = ""
    parts: int = 1


def element_of(dtype: Dtype) -> Element:
    """How to compute with ``dtype``, in its accumulator's type."""
    kind = PrimitiveType.from_numpy(dtype)
    if kind is PrimitiveType.BF16:
        return Element("i16", "float", _WIDEN_BF16, _NARROW_BF16)
    if kind is PrimitiveType.F16:
        return Element(
            "half", "float", "%y = fpext half %x to float", "%y = fptrunc float %x to half"
        )
    if kind.is_floating and kind.byte_size == 1:
        return Element("i8", "float", *conversions(kind))
    if kind.is_integer and kind.bits < 8:
        return Element("i8", "i8", *_small_integer(kind.bits, kind.is_signed_integer))
    if kind.is_complex:
        return Element(*("float" if kind is PrimitiveType.C64 else "double",) * 2, parts=2)
    if kind.is_floating:
        return Element(*("float" if kind is PrimitiveType.F32 else "double",) * 2)
    return Element(*(f"i{kind.byte_size * 8}",) * 2)


def can_reduce(dtype: Dtype, reduction: ReductionKind) -> bool:
    """Whether there is a kernel. A complex product has none: NumPy rounds it by other instructions than LLVM's."""
    if dtype.kind == "c":
        return reduction is ReductionKind.SUM
    if PrimitiveType.from_numpy(dtype).is_floating:
        return reduction in _FLOAT_OPERATIONS
    return True


def reduction_ir(name: str, dtype: Dtype, reduction: ReductionKind) -> str:
    """A module with the step function ``name``, which runs a reduce record (see llvm_shared_memory)."""
    element = element_of(dtype)
    size = dtype.itemsize // element.parts
    forms = itertools.product(("stored", "wide"), repeat=2)
    if element.stored == element.wide and not element.widen:
        forms = itertools.product(("stored",), repeat=2)  # one loop serves all
    loops = {form: _combine_loop(element, *form) for form in forms}
    names = {
        f"{first}_{last}": f"combine_{first}_{last}"
        if (first, last) in loops
        else "combine_stored_stored"
        for first, last in itertools.product(("stored", "wide"), repeat=2)
    }
    return "\n".join(
        [
            *combining_ir(dtype, reduction),
            *loops.values(),
            WORDS,
            _REDUCE.format(name=name, wide=element.wide, size=size, block=BLOCK_ELEMENTS, **names),
            _LOOP_METADATA,
        ]
    )


def _conversion(name: str, source: str, target: str, body: str) -> str:
    result = "%y" if body else "%x"
    return (
        f"define internal {target} @{name}({source} %x) alwaysinline {{\n"
        f"  {body}\n  ret {target} {result}\n}}"
    )


_FLOAT_OPERATIONS: dict[ReductionKind, str] = {
    ReductionKind.SUM: "%r = fadd {t} %a, %b",
    ReductionKind.PRODUCT: "%r = fmul {t} %a, %b",
    # As NumPy: a nan wins, the first of two; of two equal values (zeros of either sign) the second.
    ReductionKind.MIN: "%nan = fcmp uno {t} %a, %a\n  %less = fcmp olt {t} %a, %b\n"
    "  %first = or {b} %nan, %less\n  %r = select {b} %first, {t} %a, {t} %b",
    ReductionKind.MAX: "%nan = fcmp uno {t} %a, %a\n  %more = fcmp ogt {t} %a, %b\n"
    "  %first = or {b} %nan, %more\n  %r = select {b} %first, {t} %a, {t} %b",
}
_INTEGER_OPERATIONS: dict[ReductionKind, str] = {
    ReductionKind.SUM: "%r = add {t} %a, %b",
    ReductionKind.PRODUCT: "%r = mul {t} %a, %b",
    ReductionKind.MIN: "%c = icmp {s}lt {t} %a, %b\n  %r = select {b} %c, {t} %a, {t} %b",
    ReductionKind.MAX: "%c = icmp {s}gt {t} %a, %b\n  %r = select {b} %c, {t} %a, {t} %b",
    ReductionKind.AND: "%r = and {t} %a, %b",
    ReductionKind.OR: "%r = or {t} %a, %b",
    ReductionKind.XOR: "%r = xor {t} %a, %b",
}
_BOOLEAN = {
    ReductionKind.SUM: ReductionKind.OR,
    ReductionKind.PRODUCT: ReductionKind.AND,
    ReductionKind.MIN: ReductionKind.AND,
    ReductionKind.MAX: ReductionKind.OR,
}


def combination(dtype: Dtype, reduction: ReductionKind, wide: str, lanes: int = 0) -> str:
    """What makes ``%r`` of ``%a`` and ``%b``, which are ``wide``, or vectors of so many ``lanes``."""
    types = {"t": wide, "b": "i1"}
    if lanes:
        types = {key: f"<{lanes} x {value}>" for key, value in types.items()}
    if wide in ("float", "double"):
        return _FLOAT_OPERATIONS[reduction].format(**types)
    if dtype.kind == "b":
        reduction = _BOOLEAN.get(reduction, reduction)
    sign = "s" if accumulator_type(dtype).kind == "i" else "u"
    return _INTEGER_OPERATIONS[reduction].format(s=sign, **types)


def combining_ir(dtype: Dtype, reduction: ReductionKind, suffix: str = "") -> list[str]:
    """@widen, @narrow and @combine, with a suffix: between memory's type and the accumulator's, and in that."""
    element = element_of(dtype)
    stored, wide = element.stored, element.wide
    combine = _COMBINATION.format(
        name=f"combine{suffix}", type=wide, body=combination(dtype, reduction, wide)
    )
    return [
        _conversion(f"widen{suffix}", stored, wide, element.widen),
        _conversion(f"narrow{suffix}", wide, stored, element.narrow),
        combine,
    ]


def neutral(kind: PrimitiveType, reduction: ReductionKind) -> str:
    """An instruction: what combines with any other value to that, in the accumulator's type; -0.0 in sums of floats."""
    wide = element_of(kind.numpy).wide
    value = identity_value(reduction, kind)
    if wide in ("float", "double"):
        if reduction is ReductionKind.SUM:
            value = -0.0
        array = np.array(value, {"float": np.float32, "double": np.float64}[wide])
        bits = int.from_bytes(array.tobytes(), "little")
        return f"bitcast i{array.itemsize * 8} {bits} to {wide}"
    assert isinstance(value, int)
    return f"bitcast {wide} {int(value)} to {wide}"


def _small_integer(bits: int, signed: bool) -> tuple[str, str]:
    """Integers below 8 bits lie in the low bits of a byte, zeros above."""
    shift = "ashr" if signed else "lshr"
    return (
        f"%up = shl i8 %x, {8 - bits}\n  %y = {shift} i8 %up, {8 - bits}",
        f"%y = and i8 %x, {(1 << bits) - 1}",
    )


_WIDEN_BF16 = """%wide = zext i16 %x to i32
  %bits = shl i32 %wide, 16
  %y = bitcast i32 %bits to float"""

# To nearest, ties to even; every nan becomes the quiet one of its sign.
_NARROW_BF16 = """%bits = bitcast float %x to i32
  %upper = lshr i32 %bits, 16
  %odd = and i32 %upper, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %rounded = lshr i32 %sum, 16
  %sign = and i32 %upper, 32768
  %quiet = or i32 %sign, 32704
  %nan = fcmp uno float %x, %x
  %chosen = select i1 %nan, i32 %quiet, i32 %rounded
  %y = trunc i32 %chosen to i16"""

_COMBINATION = """
define internal {type} @{name}({type} %a, {type} %b) alwaysinline {{
  {body}
  ret {type} %r
}}
"""


def _combine_loop(element: Element, first: str, last: str) -> str:
    """out[i] = a[i] op b[i], where b is in memory's type, and a and out in memory's or the accumulator's."""
    stored, wide = element.stored, element.wide
    a_type = stored if first == "stored" else wide
    out_type = stored if last == "stored" else wide
    widened = f"%a = call {wide} @widen({stored} %a_in)" if first == "stored" else ""
    narrowed = f"%out_value = call {stored} @narrow({wide} %r)" if last == "stored" else ""
    return f"""
define internal void @combine_{first}_{last}(ptr %pa, ptr %pb, ptr %pout, i64 %n) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pa_i = getelementptr {a_type}, ptr %pa, i64 %i
  %pb_i = getelementptr {stored}, ptr %pb, i64 %i
  %pout_i = getelementptr {out_type}, ptr %pout, i64 %i
  {"%a_in" if first == "stored" else "%a"} = load {a_type}, ptr %pa_i, !llvm.access.group !0
  {widened}
  %b_in = load {stored}, ptr %pb_i, !llvm.access.group !0
  %b = call {wide} @widen({stored} %b_in)
  %r = call {wide} @combine({wide} %a, {wide} %b)
  {narrowed}
  store {out_type} {"%out_value" if last == "stored" else "%r"}, ptr %pout_i, !llvm.access.group !0
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end, !llvm.loop !1
end:
  ret void
}}
"""


# Arrays of one loop lie on each other element on element or not at all, so iterations are independent.
_LOOP_METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
"""

# Record: function, sources, number of sources (two or more), targets, number of targets, rows, elements of a row,
# bytes from row to row in sources, the same in targets. No array is empty.
_REDUCE = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal ptr @place(ptr %list, i64 %number, i64 %offset) alwaysinline {{
  %slot = getelementptr ptr, ptr %list, i64 %number
  %base = load ptr, ptr %slot
  %p = getelementptr i8, ptr %base, i64 %offset
  ret ptr %p
}}

define i64 @{name}(ptr %record, ptr %header, i64 %spins) {{
entry:
  %total = alloca [{block} x {wide}], align 64
  %sources = call ptr @pointer(ptr %record, i64 1)
  %count = call i64 @word(ptr %record, i64 2)
  %targets = call ptr @pointer(ptr %record, i64 3)
  %target_count = call i64 @word(ptr %record, i64 4)
  %rows = call i64 @word(ptr %record, i64 5)
  %elements = call i64 @word(ptr %record, i64 6)
  %source_stride = call i64 @word(ptr %record, i64 7)
  %target_stride = call i64 @word(ptr %record, i64 8)
  %two = icmp eq i64 %count, 2
  %last = sub i64 %count, 1
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %next_row, %row_end ]
  %source_row = mul i64 %r, %source_stride
  %target_row = mul i64 %r, %target_stride
  br label %block
block:
  %b = phi i64 [ 0, %row ], [ %next_block, %block_end ]
  %left = sub i64 %elements, %b
  %short = icmp ult i64 %left, {block}
  %n = select i1 %short, i64 %left, i64 {block}
  %bytes_before = mul i64 %b, {size}
  %source_offset = add i64 %source_row, %bytes_before
  %target_offset = add i64 %target_row, %bytes_before
  %s0 = call ptr @place(ptr %sources, i64 0, i64 %source_offset)
  %s1 = call ptr @place(ptr %sources, i64 1, i64 %source_offset)
  %t0 = call ptr @place(ptr %targets, i64 0, i64 %target_offset)
  br i1 %two, label %pair, label %many
pair:
  call void @{stored_stored}(ptr %s0, ptr %s1, ptr %t0, i64 %n)
  br label %spread
many:
  call void @{stored_wide}(ptr %s0, ptr %s1, ptr %total, i64 %n)
  br label %source
source:
  %k = phi i64 [ 2, %many ], [ %next_source, %middle ]
  %s = call ptr @place(ptr %sources, i64 %k, i64 %source_offset)
  %is_last = icmp eq i64 %k, %last
  br i1 %is_last, label %final, label %middle
middle:
  call void @{wide_wide}(ptr %total, ptr %s, ptr %total, i64 %n)
  %next_source = add i64 %k, 1
  br label %source
final:
  call void @{wide_stored}(ptr %total, ptr %s, ptr %t0, i64 %n)
  br label %spread
spread:
  %bytes = mul i64 %n, {size}
  br label %target
target:
  %t = phi i64 [ 1, %spread ], [ %next_target, %copy ]
  %more_targets = icmp ult i64 %t, %target_count
  br i1 %more_targets, label %copy, label %block_end
copy:
  %to = call ptr @place(ptr %targets, i64 %t, i64 %target_offset)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %t0, i64 %bytes, i1 false)
  %next_target = add i64 %t, 1
  br label %target
block_end:
  %next_block = add i64 %b, %n
  %more_blocks = icmp ult i64 %next_block, %elements
  br i1 %more_blocks, label %block, label %row_end
row_end:
  %next_row = add i64 %r, 1
  %more_rows = icmp ult i64 %next_row, %rows
  br i1 %more_rows, label %row, label %end
end:
  ret i64 0
}}
"""
