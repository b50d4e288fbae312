"""Whole lines of cache that are stored past the caches, which need not fetch them first."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.values import Pointer

LINE_BYTES = 64
#: Marks such a store, of LINE_BYTES from the first one of a line on.
PAST_CACHES = ", !nontemporal !{i32 1}"
#: Such stores become visible in no order, not even before the flag that says that the result is there: this comes last.
IN_ORDER = "fence seq_cst"


def before_line(place: Pointer, count: Int, width: int) -> Int:
    """Return how many of ``count`` elements of ``width`` bytes from ``place`` on lie in front of the first whole line.

    These are all of them where none begins with a line.
    """
    gap = -place.as_int() & (LINE_BYTES - 1)
    over = gap & (width - 1)
    elements = over.equals(0).select(gap // width, count)
    return elements.umin(count)
