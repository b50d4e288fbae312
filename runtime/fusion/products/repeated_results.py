"""Results of a kernel that are equal, because one of them repeats the computation of another.

The memory scheduler repeats a cheap computation for late readers. Where fusion moves the repeat back to the first
computation, one result serves all readers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from runtime.fusion.element_graph import post_order
from spmd.analysis.structure import StructuralKeys, instruction_key
from spmd.hlo import HloInstruction


def repeated_results(
    roots: Sequence[HloInstruction], inputs: Collection[HloInstruction]
) -> Mapping[HloInstruction, HloInstruction]:
    """Return for each of ``roots`` that repeats an earlier one that earlier one. ``inputs`` are those of the kernel."""
    keys, numbers = StructuralKeys(), dict[Hashable, int]()
    number_of: dict[HloInstruction, int] = {}
    for x in post_order(roots, dict.fromkeys(inputs, 0)):
        operands = tuple(number_of[y] for y in x.operands) if x not in inputs else ()
        key = x if x in inputs else (instruction_key(x, keys.key), operands)
        number_of[x] = numbers.setdefault(key, len(numbers))
    first: dict[int, HloInstruction] = {}
    for root in roots:
        first.setdefault(number_of[root], root)
    return {x: first[number_of[x]] for x in roots if first[number_of[x]] is not x}
