"""Streaming stores of full cache lines, which bypass the caches and need not fetch the lines first."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.values import Pointer

LINE_BYTES = 64
#: Suffix of a streaming store of LINE_BYTES to the start of a line.
PAST_CACHES = ", !nontemporal !{i32 1}"
#: Fence behind streaming stores, which are weakly ordered: without it a flag could become visible before the result.
IN_ORDER = "fence seq_cst"


def before_line(start: Pointer, count: Int, width: int) -> Int:
    """Return how many of ``count`` elements of ``width`` bytes from ``start`` on precede the first full cache line.

    If no element begins with a line, these are all of them.
    """
    gap = -start.as_int() & (LINE_BYTES - 1)
    over = gap & (width - 1)
    elements = over.equals(0).select(gap // width, count)
    return elements.umin(count)
