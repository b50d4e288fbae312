"""Native code of select-and-scatter: each window keeps one element, to whose place its source element is added.

One function per element type, comparison and combination serves all shapes; a record of words says what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_reduction import combination, element_of
from runtime.codegen.llvm_words import OFFSET, RANK, WORDS, digits, offset
from spmd.device import ReductionKind
from spmd.shape import PrimitiveType

FUNCTION = "spmd_select_and_scatter"

#: The first dimension's words, and from there to the next one's: see ``SelectWords``.
_FIRST, _APART = 5, 9


@dataclass(frozen=True, slots=True)
class SelectedElements:
    """A window keeps element a when the next one is b and ``a direction b`` (GE, GT, LE or LT) holds.

    Floats narrower than f32 are compared and combined in f32, which is then the result's type.
    """

    kind: PrimitiveType
    direction: str
    reduction: ReductionKind


@dataclass(frozen=True, slots=True)
class SelectWords:
    """Addresses; then per dimension (windows, a window's size, its stride, dilation, low padding, the operand's size,
    and bytes from element to element in operand, source and result), the slowest first.
    """

    operand: int
    source: int
    result: int
    dimensions: Sequence[tuple[int, ...]]

    def packed(self) -> list[int]:
        missing = [(1, 1, 1, 1, 0, 1, 0, 0, 0)] * (RANK - len(self.dimensions))
        dimensions = [*missing, *self.dimensions]
        windows, elements = 1, 1
        for dimension in dimensions:
            windows *= dimension[0]
            elements *= dimension[1]
        words = [self.operand, self.source, self.result, windows, elements]
        return words + [word for dimension in dimensions for word in dimension]


@cache
def select_and_scatter_code(elements: SelectedElements) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    ir = select_and_scatter_ir(elements)
    return host_jit().compile(ir, (FUNCTION,))


def select_and_scatter_ir(elements: SelectedElements) -> str:
    dtype = elements.kind.numpy
    element = element_of(dtype)
    return (
        WORDS
        + OFFSET
        + _IR.format(
            name=FUNCTION,
            stored=element.stored,
            wide=element.wide,
            widen=element.widen,
            widened="%y" if element.widen else "%x",
            combine=combination(dtype, elements.reduction, element.wide),
            compare=_comparison(elements, element.wide),
            sizes="\n".join(_loaded("windows", 0) + _loaded("elements", 1)),
            window_digits=digits("o", "%p", [f"%windows{d}" for d in range(RANK)]),
            element_digits=digits("k", "%q", [f"%elements{d}" for d in range(RANK)]),
            indices="\n".join(_index(d) for d in range(RANK)),
            source_offset=offset("source_offset", "o", _FIRST + 7, _APART),
            operand_offset=offset("operand_offset", "i", _FIRST + 6, _APART),
            result_offset=offset("result_offset", "i", _FIRST + 8, _APART),
        )
    )


def _comparison(elements: SelectedElements, wide: str) -> str:
    condition = elements.direction.lower()
    if wide in ("float", "double"):
        return f"%keeps = fcmp o{condition} {wide} %best, %value"
    sign = "s" if elements.kind.is_signed_integer else "u"
    return f"%keeps = icmp {sign}{condition} {wide} %best, %value"


def _loaded(name: str, part: int) -> list[str]:
    """%{name}0..: part number ``part`` of each dimension's words."""
    return [
        f"  %{name}{d} = call i64 @word(ptr %record, i64 {_FIRST + _APART * d + part})"
        for d in range(RANK)
    ]


def _index(d: int) -> str:
    """%i, where element %k of window %o lies in dimension d, and %inside, whether that is no padding."""
    word = _FIRST + _APART * d
    return f"""  %stride{d} = call i64 @word(ptr %record, i64 {word + 2})
  %dilation{d} = call i64 @word(ptr %record, i64 {word + 3})
  %low{d} = call i64 @word(ptr %record, i64 {word + 4})
  %limit{d} = call i64 @word(ptr %record, i64 {word + 5})
  %start{d} = mul i64 %o{d}, %stride{d}
  %way{d} = mul i64 %k{d}, %dilation{d}
  %padded{d} = add i64 %start{d}, %way{d}
  %i{d} = sub i64 %padded{d}, %low{d}
  %fits{d} = icmp ult i64 %i{d}, %limit{d}
  %inside{d} = and i1 {f"%inside{d - 1}" if d else "true"}, %fits{d}"""


_IR = """
define internal {wide} @widen({stored} %x) alwaysinline {{
  {widen}
  ret {wide} {widened}
}}

define internal {wide} @combine({wide} %a, {wide} %b) alwaysinline {{
  {combine}
  ret {wide} %r
}}

define void @{name}(ptr %record) {{
entry:
  %operand = load ptr, ptr %record
  %source_slot = getelementptr ptr, ptr %record, i64 1
  %source = load ptr, ptr %source_slot
  %result_slot = getelementptr ptr, ptr %record, i64 2
  %result = load ptr, ptr %result_slot
  %windows = call i64 @word(ptr %record, i64 3)
  %elements = call i64 @word(ptr %record, i64 4)
{sizes}
  br label %window
window:
  %p = phi i64 [ 0, %entry ], [ %next_p, %window_done ]
{window_digits}
  br label %element
element:
  %q = phi i64 [ 0, %window ], [ %next_q, %element_done ]
  %best = phi {wide} [ zeroinitializer, %window ], [ %next_best, %element_done ]
  %place = phi i64 [ -1, %window ], [ %next_place, %element_done ]
{element_digits}
{indices}
  br i1 %inside3, label %covered, label %element_done
covered:
{operand_offset}
{result_offset}
  %at = getelementptr i8, ptr %operand, i64 %operand_offset
  %stored_value = load {stored}, ptr %at
  %value = call {wide} @widen({stored} %stored_value)
  {compare}
  %has_one = icmp sge i64 %place, 0
  %stays = and i1 %has_one, %keeps
  %better = select i1 %stays, {wide} %best, {wide} %value
  %better_place = select i1 %stays, i64 %place, i64 %result_offset
  br label %element_done
element_done:
  %next_best = phi {wide} [ %best, %element ], [ %better, %covered ]
  %next_place = phi i64 [ %place, %element ], [ %better_place, %covered ]
  %next_q = add i64 %q, 1
  %more_elements = icmp ult i64 %next_q, %elements
  br i1 %more_elements, label %element, label %chosen
chosen:
  %any = icmp sge i64 %next_place, 0
  br i1 %any, label %add, label %window_done
add:
{source_offset}
  %from = getelementptr i8, ptr %source, i64 %source_offset
  %stored_update = load {stored}, ptr %from
  %update = call {wide} @widen({stored} %stored_update)
  %to = getelementptr i8, ptr %result, i64 %next_place
  %before = load {wide}, ptr %to
  %after = call {wide} @combine({wide} %before, {wide} %update)
  store {wide} %after, ptr %to
  br label %window_done
window_done:
  %next_p = add i64 %p, 1
  %more = icmp ult i64 %next_p, %windows
  br i1 %more, label %window, label %end
end:
  ret void
}}
"""
