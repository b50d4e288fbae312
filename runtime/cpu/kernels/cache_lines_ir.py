"""Whole lines of cache that are stored past the caches, which need not fetch them first."""

from __future__ import annotations

LINE_BYTES = 64
#: Marks such a store, of LINE_BYTES from the first one of a line on.
PAST_CACHES = ", !nontemporal !{i32 1}"
#: Such stores become visible in no order, not even before the flag that says that the result is there: this comes last.
IN_ORDER = "fence seq_cst"

UMIN = "declare i64 @llvm.umin.i64(i64, i64)\n"


def before_line_ir(width: int) -> str:
    """``@before_line``: how many elements of ``width`` bytes lie in front of the first whole line."""
    return UMIN + _BEFORE_LINE.format(width=width, in_line=LINE_BYTES - 1, in_element=width - 1)


_BEFORE_LINE = """
; from %place on; all of %count where none of them begins with a line
define internal i64 @before_line(ptr %place, i64 %count) alwaysinline {{
  %at = ptrtoint ptr %place to i64
  %back = sub i64 0, %at
  %gap = and i64 %back, {in_line}
  %over = and i64 %gap, {in_element}
  %whole = icmp eq i64 %over, 0
  %gap_elements = udiv i64 %gap, {width}
  %elements = select i1 %whole, i64 %gap_elements, i64 %count
  %before = call i64 @llvm.umin.i64(i64 %elements, i64 %count)
  ret i64 %before
}}
"""
