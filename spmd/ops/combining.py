"""Reducers whose results are each a known operation on its total and on a value computed from the elements alone.

    maximum(total, abs(x))                                  max of abs(x)
    (add(t0, multiply(x, y)), maximum(t1, y))               sum of x * y, max of y

Elements are the second arguments, so such a reducer is a plain reduction of a function of the elements. As a function
of two totals it may be no known reduction: abs is not applied to the first one.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.device import ReductionKind
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import operation_kind, through_annotations


@dataclass(frozen=True)
class Combining:
    """One result of a reducer: ``kind`` of its total and of ``element``, which does not depend on totals."""

    kind: ReductionKind
    element: HloInstruction


def combinings(reducer: HloComputation) -> list[Combining] | None:
    """Return one entry per result of (totals, elements) -> totals; None if any result has another form."""
    roots = through_annotations(reducer.root).elements
    if reducer.num_parameters != 2 * len(roots):
        return None
    totals = reducer.parameters[: len(roots)]
    made_of_totals = _made_of(reducer, totals)
    found: list[Combining] = []
    for total, result in zip(totals, map(through_annotations, roots), strict=True):
        kind = operation_kind(result)
        sides = [through_annotations(x) for x in result.operands]
        if kind is None or total not in sides:
            return None
        element = sides[1 - sides.index(total)]
        if element in made_of_totals:
            return None
        found.append(Combining(kind, element))
    return found


def is_plain(reducer: HloComputation, found: Sequence[Combining]) -> bool:
    """Return whether the reducer has one result, and combines its total with the element itself."""
    return [x.element for x in found] == list(reducer.parameters[1:])


def _made_of(computation: HloComputation, sources: Sequence[HloInstruction]) -> set[HloInstruction]:
    made = set(sources)
    for x in computation.post_order():
        if not made.isdisjoint(x.operands):
            made.add(x)
    return made
