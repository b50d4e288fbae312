"""Analysis of attention's masks: the distance of columns from rows outside of which scores are hidden, or contribute
nothing.

A causal mask compares iotas along rows and columns. Kernels of attention fusions do not compute blocks that it hides
entirely, and their cost is that of the visible scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from spmd.device import ReductionKind
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.opcode import MIRRORED, CompareAttrs
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConstantAttrs, DimensionsAttrs, IotaAttrs
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.ops.reduction import reduction_kind
from spmd.shape import PrimitiveType

#: Axis of each dimension of a value, in the order of its dimensions. Different axes are unequal.
Axes: TypeAlias = tuple[Hashable, ...]
#: Scores of hidden positions are at most this.
MOST_HIDDEN = -1e4
#: Integer types in which positions do not wrap around, and the largest number that is added to positions.
_POSITIONS, _MOST_OFFSET = (PrimitiveType.S32, PrimitiveType.S64), 1 << 28
_INVERSE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE"}


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """Positions with low <= column - row <= high. None: no limit."""

    low: int | None = None
    high: int | None = None

    @property
    def is_everything(self) -> bool:
        """True if all positions are in the window."""
        return self.low is None and self.high is None

    def visible(self, rows: int, columns: int) -> int:
        """Return the number of positions of a matrix of ``rows`` x ``columns`` that are in the window."""
        high = columns if self.high is None else self.high
        low = -rows if self.low is None else self.low
        return max(_up_to(high, rows, columns) - _up_to(low - 1, rows, columns), 0)

    def intersection(self, other: AttentionWindow) -> AttentionWindow:
        """Return a window that contains all positions of both windows."""
        lows = [window.low for window in (self, other) if window.low is not None]
        highs = [window.high for window in (self, other) if window.high is not None]
        return AttentionWindow(max(lows, default=None), min(highs, default=None))

    def union(self, other: AttentionWindow) -> AttentionWindow:
        """Return a window that contains all positions of either window."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return AttentionWindow(low, high)


def _up_to(distance: int, rows: int, columns: int) -> int:
    """Return the number of positions of a matrix of ``rows`` x ``columns`` with column - row <= ``distance``."""

    def triangle(last: int) -> int:
        """Return the sum of i, at most ``columns``, for 0 <= i <= last."""
        inside = max(min(last, columns), 0)
        return inside * (inside + 1) // 2 + max(last - columns, 0) * columns

    return triangle(distance + rows) - triangle(distance)


@dataclass(frozen=True, slots=True)
class HiddenScores:
    """AttentionWindow outside of which scores are ``value``, at most ``MOST_HIDDEN``."""

    window: AttentionWindow
    value: float


@dataclass(frozen=True, eq=False)
class ZeroOutside:
    """AttentionWindow outside of which values are 0, if hidden scores are small enough.

    conditions: pairs (values of rows y, number n): exp(n - y) must be 0 for every row.
    """

    window: AttentionWindow
    conditions: tuple[tuple[HloInstruction, float], ...] = ()


class Masks:
    """Analysis of the masks of scores with ``axes``, the last two of which are rows and columns."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._rows, self._columns = axes[-2:]

    def hidden_scores(self, x: HloInstruction) -> HiddenScores | None:
        """Return where a mask hides the scores ``x``, or None if the analysis finds no mask."""
        while x.opcode is Opcode.CONVERT:
            x = x.operand(0)
        if x.opcode is not Opcode.SELECT:
            return None
        for number, visible in ((2, True), (1, False)):
            value = constant_value(x.operand(number))
            if value is not None and value <= MOST_HIDDEN:
                window = self._where(x.operand(0), self._axes, visible)
                return None if window.is_everything else HiddenScores(window, value)
        return None

    def zero_outside(self, x: HloInstruction) -> ZeroOutside | None:
        """Return the window outside of which the scores ``x`` are 0, or None if the analysis finds none.

        A product counts as 0 if one factor is 0, although 0 times infinity is nan.
        """
        match x.opcode:
            case Opcode.CONVERT | Opcode.NEGATE | Opcode.DIVIDE:
                return self.zero_outside(x.operand(0))
            case Opcode.MULTIPLY:
                found = [zero for y in x.operands if (zero := self.zero_outside(y)) is not None]
                return min(found, key=lambda zero: len(zero.conditions), default=None)
            case Opcode.ADD | Opcode.SUBTRACT:
                return zero_in_all([self.zero_outside(y) for y in x.operands])
            case Opcode.SELECT:
                for number, visible in ((2, True), (1, False)):
                    if constant_value(x.operand(number)) == 0:
                        window = self._where(x.operand(0), self._axes, visible)
                        return None if window.is_everything else ZeroOutside(window)
            case Opcode.EXPONENTIAL if x.operand(0).opcode is Opcode.SUBTRACT:
                scores, rows = x.operand(0).operands
                hidden = self.hidden_scores(scores)
                if hidden is not None and is_of_rows(rows):
                    return ZeroOutside(hidden.window, ((rows, hidden.value),))
        return None

    def _where(self, mask: HloInstruction, axes: Axes, value: bool) -> AttentionWindow:
        """Return a window that contains all positions at which the predicate ``mask``, with ``axes``, is ``value``."""
        match mask.opcode:
            case Opcode.BROADCAST:
                return self._where(mask.operand(0), _operand_axes(mask, axes), value)
            case Opcode.NOT:
                return self._where(mask.operand(0), axes, not value)
            case Opcode.COMPARE:
                return self._compared(mask, axes, value)
            case Opcode.AND | Opcode.OR:
                first, second = (self._where(x, axes, value) for x in mask.operands)
                both = (mask.opcode is Opcode.AND) == value
                return first.intersection(second) if both else first.union(second)
        return AttentionWindow()

    def _compared(self, mask: HloInstruction, axes: Axes, value: bool) -> AttentionWindow:
        left, right = (self._position(x, axes) for x in mask.operands)
        if left is None or right is None:
            return AttentionWindow()
        rows, columns, offset = (a - b for a, b in zip(left, right, strict=True))
        direction = mask.attrs_as(CompareAttrs).direction
        direction = direction if value else _INVERSE[direction]
        if (rows, columns) == (1, -1):
            direction, offset = MIRRORED[direction], -offset
        elif (rows, columns) != (-1, 1):
            return AttentionWindow()
        # The comparison is that of column - row + offset with 0.
        return {
            "GE": AttentionWindow(low=-offset),
            "GT": AttentionWindow(low=1 - offset),
            "LE": AttentionWindow(high=-offset),
            "LT": AttentionWindow(high=-1 - offset),
            "EQ": AttentionWindow(-offset, -offset),
        }.get(direction, AttentionWindow())

    def _position(self, x: HloInstruction, axes: Axes) -> tuple[int, int, int] | None:
        """Return (a, b, c) if ``x`` is a times the row plus b times the column plus c; otherwise None."""
        if x.array_shape.element_type not in _POSITIONS:
            return None
        found: tuple[int, int, int] | None = None
        match x.opcode:
            case Opcode.BROADCAST:
                return self._position(x.operand(0), _operand_axes(x, axes))
            case Opcode.CONVERT:
                return self._position(x.operand(0), axes)
            case Opcode.CONSTANT if (value := constant_value(x)) is not None:
                found = (0, 0, int(value))
            case Opcode.IOTA:
                axis = axes[x.attrs_as(IotaAttrs).dimension]
                found = {self._rows: (1, 0, 0), self._columns: (0, 1, 0)}.get(axis)
            case Opcode.ADD | Opcode.SUBTRACT:
                first, second = (self._position(y, axes) for y in x.operands)
                if first is not None and second is not None:
                    sign = 1 if x.opcode is Opcode.ADD else -1
                    a, b, c = (i + sign * j for i, j in zip(first, second, strict=True))
                    found = (a, b, c)
        return found if found is not None and abs(found[2]) <= _MOST_OFFSET else None


def visible_window(fused: HloComputation) -> AttentionWindow:
    """Return a window of all scores that the kernel of the attention fusion ``fused`` computes, by its masks.

    Operands of the fusion that hide scores are not known: they hide none.
    """
    product = next(iter(fused.with_opcode(Opcode.DOT)))
    masks = Masks(tuple(range(product.array_shape.rank)))
    scores, sinks, is_online = _scores_and_sinks(fused, product.dims)
    maxima = [x for x in sinks if x.opcode is Opcode.REDUCE and not _is_sum(x)]
    if is_online:
        hidden = [masks.hidden_scores(x.operand(0)) for x in maxima]
        return hidden[0].window if len(hidden) == 1 and hidden[0] else AttentionWindow()
    if maxima:
        return AttentionWindow()
    summed = (next(operand for operand in x.operands if operand in scores) for x in sinks)
    zero = zero_in_all([masks.zero_outside(x) for x in summed])
    return zero.window if zero is not None else AttentionWindow()


def _scores_and_sinks(
    fused: HloComputation, dims: Sequence[int]
) -> tuple[dict[HloInstruction, None], list[HloInstruction], bool]:
    """Return the scores of ``fused``, which have ``dims``; the products and reductions that sum them; and whether
    scores depend on such sums, as in a softmax.
    """
    scores: dict[HloInstruction, None] = {}
    sinks: list[HloInstruction] = []
    of_sinks: set[HloInstruction] = set()
    is_online = False
    for x in fused.post_order():
        has_scores = any(operand in scores for operand in x.operands)
        has_sinks = not of_sinks.isdisjoint(x.operands)
        if has_scores and x.opcode in (Opcode.DOT, Opcode.REDUCE):
            sinks.append(x)
            of_sinks.add(x)
        elif has_scores or (x.opcode is Opcode.DOT and x.dims == dims and not has_sinks):
            scores[x] = None
            is_online |= has_sinks
        elif has_sinks:
            of_sinks.add(x)
    return scores, sinks, is_online


def _is_sum(x: HloInstruction) -> bool:
    return reduction_kind(x.to_apply) is ReductionKind.SUM


def constant_value(x: HloInstruction) -> float | None:
    """Return the number that all elements of ``x`` are, or None if ``x`` is no broadcast constant."""
    while x.opcode in (Opcode.BROADCAST, Opcode.CONVERT):
        x = x.operand(0)
    if x.opcode is not Opcode.CONSTANT:
        return None
    literal = x.attrs_as(ConstantAttrs).literal
    return float(literal.value()) if literal is not None and literal.is_scalar else None


def is_of_rows(x: HloInstruction) -> bool:
    """Return whether ``x``, which has the score dimensions and is no score, is constant along rows."""
    last = x.array_shape.rank - 1
    if x.opcode is Opcode.BROADCAST:
        return last not in x.attrs_as(DimensionsAttrs).dimensions
    if x.opcode is Opcode.IOTA:
        return last != x.attrs_as(IotaAttrs).dimension
    return x.opcode in ELEMENTWISE_OPS and all(map(is_of_rows, x.operands))


def _operand_axes(broadcast: HloInstruction, axes: Axes) -> Axes:
    return tuple(axes[d] for d in broadcast.attrs_as(DimensionsAttrs).dimensions)


def zero_in_all(parts: Sequence[ZeroOutside | None]) -> ZeroOutside | None:
    """Return the window outside of which all of ``parts`` are 0, or None if there is none."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or not found:
        return None
    window = found[0].window
    for part in found[1:]:
        window = window.union(part.window)
    conditions = {condition: None for part in found for condition in part.conditions}
    return None if window.is_everything else ZeroOutside(window, tuple(conditions))
