"""LLVM IR of the step that reduces rows of n arrays, in the order of these, to each of m others (``ReduceRows``).

*At once*, for few arrays: a loop over elements reads each source's, combines them in the accumulator's type and stores
the result in every target: as many loads and stores as there are arrays. *In blocks*, for many: these are more streams
than a core prefetches. Within a block that stays in the first-level cache one source after the other is combined with
what came before; the last one goes to the first target, and from there to the others.

bf16 goes *by words* of two elements, which widen by a mask and a shift, where vectors of single ones would have to be
shuffled: less time by a fifth (two arrays) to a third (four).

In either form the first source may be a *prefix*, in the accumulator's type, and targets may be.

An element of a target may lie on the same element of any source, in both: it is written after all were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.communicator.reduction import accumulator_type
from runtime.codegen.ir.combine import Dtype, Element, combining_ir, element_of
from runtime.codegen.ir.record_words import WORDS
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

_BF16 = PrimitiveType.BF16.numpy

#: Sources up to which they are reduced at once.
MOST_AT_ONCE = 8

#: Of a block: four sources and what they have come to fit in a first-level cache together, several times over.
BLOCK_ELEMENTS = 1024


@dataclass(frozen=True)
class Streams:
    """Numbers of sources and targets."""

    sources: int
    targets: int


@dataclass(frozen=True)
class Prefixes:
    """Whether the first source, and whether targets, are in the accumulator's type."""

    comes: bool = False
    goes: bool = False

    @property
    def output(self) -> str:
        return "wide" if self.goes else "stored"

    def inputs(self, count: int) -> list[str]:
        return ["wide" if self.comes else "stored", *["stored"] * (count - 1)]


def streams_of_code(sources: int, targets: int) -> Streams | None:
    """Return the numbers for which code is compiled; None for the code that serves all with more than ``MOST_AT_ONCE``
    sources."""
    return Streams(sources, targets) if sources <= MOST_AT_ONCE else None


def reduce_rows_ir(
    name: str,
    dtype: Dtype,
    reduction: ReductionKind,
    streams: Streams | None,
    prefixes: Prefixes = Prefixes(),
) -> str:
    """A module with the step function ``name``, which runs a reduce record (see shared_memory_ir)."""
    element = element_of(dtype)
    combining = combining_ir(dtype, reduction)
    if streams:
        step = _at_once(name, element, streams, prefixes)
    else:
        wide = accumulator_type(dtype).itemsize // element.parts
        step = _in_blocks(
            name, element, {"stored": dtype.itemsize // element.parts, "wide": wide}, prefixes
        )
    return "\n".join([*combining, WORDS, _PLACE, *step, _LOOP_METADATA])


def _at_once(name: str, element: Element, streams: Streams, prefixes: Prefixes) -> Iterator[str]:
    sources = [f"s{k}" for k in range(streams.sources)]
    targets = [f"t{k}" for k in range(streams.targets)]
    inputs = prefixes.inputs(len(sources))
    if element == element_of(_BF16) and prefixes == Prefixes():
        yield _combine_loop("reduce_elements", element, inputs, "stored", len(targets))
        yield from _by_words("reduce_row", element, len(sources), len(targets))
    else:
        yield _combine_loop("reduce_row", element, inputs, prefixes.output, len(targets))
    places = [
        f"%{one} = call ptr @place(ptr %{kind}s, i64 {k}, i64 %{kind}_row)"
        for kind, ones in (("source", sources), ("target", targets))
        for k, one in enumerate(ones)
    ]
    pointers = ", ".join(f"ptr %{one}" for one in (*sources, *targets))
    yield _AT_ONCE.format(name=name, places="\n  ".join(places), pointers=pointers)


def _in_blocks(
    name: str, element: Element, sizes: dict[str, int], prefixes: Prefixes
) -> Iterator[str]:
    """``sizes``: bytes of a number as it lies in memory, and in the accumulator's type."""
    begin = prefixes.inputs(2)
    forms = {
        "first": (begin, "wide"),
        "middle": (["wide", "stored"], "wide"),
        "last": (["wide", "stored"], prefixes.output),
    }
    for form, (inputs, output) in forms.items():
        yield _combine_loop(f"combine_{form}", element, inputs, output)
    yield _IN_BLOCKS.format(
        name=name,
        wide=element.wide,
        first=sizes[begin[0]],
        size=sizes["stored"],
        target=sizes[prefixes.output],
        block=BLOCK_ELEMENTS,
    )


def _combine_loop(
    name: str, element: Element, inputs: Sequence[str], output: str, targets: int = 1
) -> str:
    """Every out[i] = in0[i] op in1[i] op ..., each in memory's type (``stored``) or in the accumulator's (``wide``)."""
    types = {"stored": element.stored, "wide": element.wide}
    body = []
    for k, form in enumerate(inputs):
        body += [
            f"%in{k}_i = getelementptr {types[form]}, ptr %in{k}, i64 %i",
            f"%{form}{k} = load {types[form]}, ptr %in{k}_i, !llvm.access.group !0",
        ]
        if form == "stored":
            body.append(f"%wide{k} = call {element.wide} @widen({element.stored} %stored{k})")
    body += _combined(element, "wide", len(inputs))
    if output == "stored":
        body.append(f"%stored = call {element.stored} @narrow({element.wide} %wide)")
    body += _stores(types[output], f"%{output}", targets)
    parameters = ", ".join(f"ptr %{one}" for one in _pointers(len(inputs), targets))
    return _LOOP.format(name=name, parameters=parameters, body="\n  ".join(body))


def _by_words(name: str, element: Element, sources: int, targets: int) -> Iterator[str]:
    """``name`` for elements of two bytes: @reduce_words for pairs of them, @reduce_elements for one that is left."""
    stored, wide = element.stored, element.wide
    body = []
    for k in range(sources):
        body += [
            f"%in{k}_i = getelementptr i32, ptr %in{k}, i64 %i",
            f"%word{k} = load i32, ptr %in{k}_i, align 2, !llvm.access.group !0",
            f"%upper{k} = lshr i32 %word{k}, 16",
            f"%low_stored{k} = trunc i32 %word{k} to {stored}",
            f"%high_stored{k} = trunc i32 %upper{k} to {stored}",
            f"%low{k} = call {wide} @widen({stored} %low_stored{k})",
            f"%high{k} = call {wide} @widen({stored} %high_stored{k})",
        ]
    for half in ("low", "high"):
        body += [
            *_combined(element, half, sources),
            f"%{half}_stored = call {stored} @narrow({wide} %{half})",
            f"%{half}_bits = zext {stored} %{half}_stored to i32",
        ]
    body += ["%shifted = shl i32 %high_bits, 16", "%word = or i32 %shifted, %low_bits"]
    body += _stores("i32", "%word", targets, ", align 2")
    pointers = _pointers(sources, targets)
    parameters = ", ".join(f"ptr %{one}" for one in pointers)
    yield _LOOP.format(name="reduce_words", parameters=parameters, body="\n  ".join(body))
    last = [f"%{one}_last = getelementptr {stored}, ptr %{one}, i64 %before" for one in pointers]
    yield _BY_WORDS.format(
        name=name,
        parameters=parameters,
        places="\n  ".join(last),
        last=", ".join(f"ptr %{one}_last" for one in pointers),
    )


def _pointers(sources: int, targets: int) -> list[str]:
    return [f"in{k}" for k in range(sources)] + [f"out{k}" for k in range(targets)]


def _combined(element: Element, value: str, count: int) -> Iterator[str]:
    """%value = %value0 op %value1 op ..."""
    wide, total = element.wide, f"%{value}0"
    for k in range(1, count):
        result = f"%{value}" if k == count - 1 else f"%{value}_to{k}"
        yield f"{result} = call {wide} @combine({wide} {total}, {wide} %{value}{k})"
        total = result


def _stores(type_: str, value: str, targets: int, alignment: str = "") -> Iterator[str]:
    for k in range(targets):
        yield f"%out{k}_i = getelementptr {type_}, ptr %out{k}, i64 %i"
        yield f"store {type_} {value}, ptr %out{k}_i{alignment}, !llvm.access.group !0"


_LOOP = """
define internal void @{name}({parameters}, i64 %n) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {body}
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end, !llvm.loop !1
end:
  ret void
}}
"""

_BY_WORDS = """
define internal void @{name}({parameters}, i64 %n) {{
entry:
  %words = lshr i64 %n, 1
  %any = icmp ne i64 %words, 0
  br i1 %any, label %pairs, label %rest
pairs:
  call void @reduce_words({parameters}, i64 %words)
  br label %rest
rest:
  %is_odd = trunc i64 %n to i1
  br i1 %is_odd, label %one, label %end
one:
  %before = sub i64 %n, 1
  {places}
  call void @reduce_elements({last}, i64 1)
  br label %end
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

_PLACE = """
define internal ptr @place(ptr %list, i64 %number, i64 %offset) alwaysinline {
  %slot = getelementptr ptr, ptr %list, i64 %number
  %base = load ptr, ptr %slot
  %p = getelementptr i8, ptr %base, i64 %offset
  ret ptr %p
}
"""

# Record: function, sources, number of sources (two or more), targets, number of targets, rows, elements of a row,
# bytes from row to row in sources, the same in targets. No array is empty.
_AT_ONCE = """
define i64 @{name}(ptr %record, ptr %header, i64 %spins) {{
entry:
  %sources = call ptr @pointer(ptr %record, i64 1)
  %targets = call ptr @pointer(ptr %record, i64 3)
  %rows = call i64 @word(ptr %record, i64 5)
  %elements = call i64 @word(ptr %record, i64 6)
  %source_stride = call i64 @word(ptr %record, i64 7)
  %target_stride = call i64 @word(ptr %record, i64 8)
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %next_row, %row ]
  %source_row = mul i64 %r, %source_stride
  %target_row = mul i64 %r, %target_stride
  {places}
  call void @reduce_row({pointers}, i64 %elements)
  %next_row = add i64 %r, 1
  %more_rows = icmp ult i64 %next_row, %rows
  br i1 %more_rows, label %row, label %end
end:
  ret i64 0
}}
"""

_IN_BLOCKS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

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
  %first_before = mul i64 %b, {first}
  %first_offset = add i64 %source_row, %first_before
  %bytes_before = mul i64 %b, {size}
  %source_offset = add i64 %source_row, %bytes_before
  %target_before = mul i64 %b, {target}
  %target_offset = add i64 %target_row, %target_before
  %s0 = call ptr @place(ptr %sources, i64 0, i64 %first_offset)
  %s1 = call ptr @place(ptr %sources, i64 1, i64 %source_offset)
  %t0 = call ptr @place(ptr %targets, i64 0, i64 %target_offset)
  call void @combine_first(ptr %s0, ptr %s1, ptr %total, i64 %n)
  br label %source
source:
  %k = phi i64 [ 2, %block ], [ %next_source, %middle ]
  %s = call ptr @place(ptr %sources, i64 %k, i64 %source_offset)
  %is_last = icmp eq i64 %k, %last
  br i1 %is_last, label %final, label %middle
middle:
  call void @combine_middle(ptr %total, ptr %s, ptr %total, i64 %n)
  %next_source = add i64 %k, 1
  br label %source
final:
  call void @combine_last(ptr %total, ptr %s, ptr %t0, i64 %n)
  %bytes = mul i64 %n, {target}
  br label %target
target:
  %t = phi i64 [ 1, %final ], [ %next_target, %copy ]
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
