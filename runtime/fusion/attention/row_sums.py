"""Row sums of weights times their gradients, computed from the output and its gradient.

With o = p v and the gradient dp = do v^T of the weights p:

    sum over t of p[s,t] * dp[s,t]    =    sum over e of o[s,e] * do[s,e]

(T. Dao et al., FlashAttention, 2022, appendix B.4). The right side needs no score matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from runtime.fusion.attention.fused_scores import OuterValues
from runtime.fusion.attention.score_axes import Axes, all_axes, source, varies_along
from runtime.fusion.attention.scores import ScoreRegion
from runtime.fusion.attention.sinks import Sink, factor_dims
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.instruction import Annotations
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.passes.fuel import Fuel
from spmd.passes.rewrite import replace_and_prune
from spmd.shape import PrimitiveType

#: Value that is constant along a row, and its axes.
_Row = tuple[HloInstruction, Axes]


@dataclass
class _Factors:
    """Factors of a score matrix: score matrices, and values per row that multiply or divide it."""

    scores: list[HloInstruction] = field(default_factory=list)
    numerators: list[_Row] = field(default_factory=list)
    denominators: list[_Row] = field(default_factory=list)
    is_negative: bool = False


def rewrite_row_sums(regions: Sequence[ScoreRegion], builder: Builder, fuel: Fuel) -> bool:
    """Rewrite the row sums of ``regions`` that equal those of outputs and their gradients. Returns whether any does."""
    spent = fuel.spent
    effects = SideEffects()
    for region in regions:
        outer = OuterValues(builder)
        outputs = [sink for sink in region.sinks if sink.of_rows and sink.kind is None]
        sums = [s for s in region.sinks if s.of_rows and s.kind is ReductionKind.SUM]
        weights = [_factors(sink.scores, region) for sink in outputs]
        for total in sums:
            found = _factors(total.scores, region)
            for output, weight in zip(outputs, weights, strict=True):
                gradient = _gradient(found, weight, output)
                if gradient is None or fuel.is_spent:
                    continue
                fuel.burn()
                x = total.instruction
                builder.annotations = Annotations(metadata=x.annotations.metadata)
                rows = _RowBuilder(builder, outer, region)
                replace_and_prune(x, rows.sum(x, found, weight, output, gradient), effects)
                _widen(gradient, builder)
                break
    return fuel.spent > spent


def _factors(x: HloInstruction, region: ScoreRegion) -> _Factors:
    """Return the factors of the score matrix ``x``, without regard to roundings by conversions."""
    found = _Factors()
    work = [(x, False)]
    while work:
        one, divides = work.pop()
        if one not in region.values:
            value, axes = source(one, all_axes(one))
            if varies_along(value, axes, region.columns):
                found.scores.append(one)
            else:
                (found.denominators if divides else found.numerators).append((value, axes))
        elif one.opcode is Opcode.CONVERT:
            work.append((one.operand(0), divides))
        elif one.opcode is Opcode.NEGATE:
            found.is_negative = not found.is_negative
            work.append((one.operand(0), divides))
        elif one.opcode is Opcode.MULTIPLY:
            work += [(operand, divides) for operand in one.operands]
        elif one.opcode is Opcode.DIVIDE and not _varies(one.operand(1), region):
            work += [(one.operand(0), divides), (one.operand(1), not divides)]
        else:
            found.scores.append(one)
    return found


def _varies(x: HloInstruction, region: ScoreRegion) -> bool:
    """Return whether ``x`` varies along the columns."""
    return x in region.values or varies_along(*source(x, all_axes(x)), region.columns)


def _gradient(total: _Factors, weight: _Factors, output: Sink) -> HloInstruction | None:
    """Return the product dp if ``total`` are the factors of p * dp, and ``weight`` those of p; else None.

    output: the product of p and the values.
    """
    remaining = list(total.scores)
    for one in weight.scores:
        if one not in remaining:
            return None
        remaining.remove(one)
    if len(remaining) != 1 or any(row not in total.numerators for row in weight.numerators):
        return None
    (gradient,) = remaining
    if gradient.opcode is not Opcode.DOT or gradient.operand(1) is not output.factor:
        return None
    values, seen = factor_dims(output.instruction, 1 - output.number), factor_dims(gradient, 1)
    # The values must have the same batch dimensions of the score matrix in both products.
    batch = factor_dims(output.instruction, output.number).batch
    is_same = dict(zip(values.batch, batch, strict=True)) == {
        d: n for n, d in enumerate(seen.batch)
    }
    return gradient if is_same and seen.contracting == values.free else None


def _widen(gradient: HloInstruction, builder: Builder) -> None:
    """Make ``gradient`` an f32 product if it is only read as f32.

    Otherwise its elements would be rounded and the row sums not, although the two cancel where one weight is 1.
    """
    conversions = gradient.users
    if any(
        user.opcode is not Opcode.CONVERT or user.array_shape.element_type is not PrimitiveType.F32
        for user in conversions
    ):
        return
    builder.annotations = gradient.annotations.of_parts()
    lhs, rhs = gradient.operands
    wide = builder.dot(lhs, rhs, gradient.attrs_as(DotAttrs), PrimitiveType.F32)
    for user in conversions:
        builder.computation.replace(user, wide)
    builder.computation.remove(gradient)


class _RowBuilder:
    """Builder of values per row, which have all score dimensions but the columns."""

    def __init__(self, builder: Builder, outer: OuterValues, region: ScoreRegion) -> None:
        self._b = builder
        self._outer = outer
        self._dims = region.dims[:-1]

    def sum(
        self,
        total: HloInstruction,
        factors: _Factors,
        weight: _Factors,
        output: Sink,
        gradient: HloInstruction,
    ) -> HloInstruction:
        """Return the value of ``total`` from the output and its gradient, the left operand of ``gradient``."""
        b = self._b
        lhs = factor_dims(gradient, 0)
        given = b.transpose_by(gradient.operand(0), (*lhs.batch, *lhs.free, *lhs.contracting))
        both = [b.as_type(x, PrimitiveType.F32) for x in (self._output(output), given)]
        result = b.reduce(b.multiply(*both), (len(self._dims),), ReductionKind.SUM)
        numerators, denominators = [*factors.numerators], [*factors.denominators]
        for row in weight.numerators:
            numerators.remove(row)
        numerators += weight.denominators
        for row in tuple(numerators):
            if row in denominators:
                numerators.remove(row)
                denominators.remove(row)
        for row in numerators:
            result = b.multiply(result, self._row(row))
        for row in denominators:
            result = b.divide(result, self._row(row))
        if factors.is_negative != weight.is_negative:
            result = b.negate(result)
        return b.as_type(result, total.array_shape.element_type)

    def _output(self, output: Sink) -> HloInstruction:
        """Return the output with the dimensions of the score matrix, and its features instead of the columns."""
        mine = factor_dims(output.instruction, output.number)
        features = len(self._dims)
        free = (*mine.free, features) if output.number == 0 else (features, *mine.free)
        axes = (*mine.batch, *free)
        return self._b.transpose_by(output.instruction, [axes.index(d) for d in range(len(axes))])

    def _row(self, row: _Row) -> HloInstruction:
        value, given = self._outer.along(*row)
        wide = self._b.as_type(value, PrimitiveType.F32)
        if given == tuple(range(len(self._dims))):
            return wide
        return self._b.broadcast(wide, given, self._dims)
