"""Positions of the largest scores of rows, where a gradient through a maximum compares scores that are computed again.

JAX divides such a gradient by the number of these positions:

    i = convert(compare(x, broadcast(m)), direction=EQ)    with m = reduce(x), to_apply=max
    n = reduce(i), to_apply=add

Another kernel may compute x with other roundings than the kernel of m. Then a row may have no such position, and the
gradient would be 0 / 0. A number of at least 1 makes it 0, which it is in exact arithmetic: a softmax does not depend
on what it subtracts.
"""

from __future__ import annotations

from runtime.fusion.attention.score_axes import source
from runtime.fusion.attention.scores import ScoreRegion
from runtime.fusion.attention.sinks import FLOATS, Sink
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs


def counts_maxima(sink: Sink, region: ScoreRegion) -> bool:
    """Return whether ``sink`` is the number of the largest scores of each row."""
    return _counted(sink, region) is not None


def compares_reproducibly(region: ScoreRegion) -> bool:
    """Return whether no result of ``region`` depends on whether scores equal values of other kernels.

    Comparisons with the largest score of a row are allowed if their number is computed, too.
    """
    counted = {_counted(sink, region) for sink in region.sinks}
    return all(x in counted or not _compares_with_others(x, region) for x in region.axes_of)


def _counted(sink: Sink, region: ScoreRegion) -> HloInstruction | None:
    """Return the comparison whose true elements per row ``sink`` counts, if it is one with the largest scores."""
    x = sink.scores
    while x in region.axes_of and (x.opcode is Opcode.CONVERT or region.is_view(x)):
        x = x.operand(0)
    if sink.kind is not ReductionKind.SUM or not sink.of_rows or not _tests_equality(x):
        return None
    scores, rows = x.operands
    if x not in region.axes_of or scores not in region.axes_of or rows in region.axes_of:
        return None
    value, axes = source(rows, region.axes_of[x])
    for other in region.sinks:
        if (other.instruction, other.axes, other.kind) == (value, axes, ReductionKind.MAX):
            return x if region.unviewed(other.scores) is region.unviewed(scores) else None
    return None


def _tests_equality(x: HloInstruction) -> bool:
    return x.opcode is Opcode.COMPARE and x.attrs_as(CompareAttrs).direction in ("EQ", "NE")


def _compares_with_others(x: HloInstruction, region: ScoreRegion) -> bool:
    """Return whether ``x`` tests if scores equal other values than scores and constants."""
    if not _tests_equality(x) or x.operand(0).array_shape.element_type not in FLOATS:
        return False
    others = [one for one in x.operands if one not in region.axes_of]
    return any(source(one, region.axes_of[x])[0].opcode is not Opcode.CONSTANT for one in others)
