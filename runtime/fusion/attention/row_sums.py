"""Row sums of weights times their gradients, computed from the output and its gradient.

With o = p v and the gradient dp = do v^T of the weights p:

    sum over t of p[s,t] * dp[s,t]    =    sum over e of o[s,e] * do[s,e]

(T. Dao et al., FlashAttention, 2022, appendix B.4). The right side needs no score matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from runtime.fusion.attention.fused_scores import OuterValues, product_factors
from runtime.fusion.attention.score_axes import Axes, source
from runtime.fusion.attention.scores import ScoreRegion
from runtime.fusion.attention.sinks import Sink
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.instruction import Annotations
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.passes.fuel import Fuel
from spmd.passes.rewrite import replace_and_prune
from spmd.shape import ArrayShape, PrimitiveType

#: Value that is constant along a row, and its axes.
_Row = tuple[HloInstruction, Axes]


@dataclass
class _Factors:
    """Factors of a score matrix: score matrices, also masks, and values per row that multiply or divide it."""

    scores: list[HloInstruction] = field(default_factory=list)
    numerators: list[_Row] = field(default_factory=list)
    denominators: list[_Row] = field(default_factory=list)
    is_negative: bool = False


def rewrite_row_sums(regions: Sequence[ScoreRegion], builder: Builder, fuel: Fuel) -> bool:
    """Rewrite the row sums of ``regions`` that equal those of outputs and their gradients. Returns whether any does."""
    spent = fuel.spent
    effects = SideEffects()
    for region in regions:
        rows = _RowBuilder(builder, region)
        outputs = [sink for sink in region.sinks if sink.of_rows and sink.kind is None]
        sums = [s for s in region.sinks if s.of_rows and s.kind is ReductionKind.SUM]
        weights = [_factors(sink.scores, region) for sink in outputs]
        for total in sums:
            if total.instruction.parent is None:  # only an earlier sum has read it
                continue
            found = _factors(total.scores, region)
            for output, weight in zip(outputs, weights, strict=True):
                gradient = _gradient(found, weight, output, region)
                if gradient is None or fuel.is_spent:
                    continue
                fuel.burn()
                x = total.instruction
                builder.annotations = Annotations(metadata=x.annotations.metadata)
                replace_and_prune(x, rows.sum(total, found, weight, output, gradient), effects)
                _widen(gradient, region, builder)
                break
    return fuel.spent > spent


def _factors(x: HloInstruction, region: ScoreRegion) -> _Factors:
    """Return the factors of the score matrix ``x``, without regard to roundings by conversions."""
    found = _Factors()
    work = [(x, region.axes_of[x], False)]
    while work:
        one, axes, divides = work.pop()
        if one not in region.axes_of:
            value, row = source(one, axes if one.dims else ())
            if region.columns in row:
                found.scores.append(one)
            else:
                (found.denominators if divides else found.numerators).append((value, row))
            continue
        axes = region.axes_of[one]
        if one.opcode is Opcode.CONVERT or region.is_view(one):
            work.append((one.operand(0), axes, divides))
        elif one.opcode is Opcode.NEGATE:
            found.is_negative = not found.is_negative
            work.append((one.operand(0), axes, divides))
        elif region.is_masked(one) and not divides:
            found.scores.append(one.operand(0))
            work.append((one.operand(1), axes, divides))
        elif one.opcode is Opcode.MULTIPLY:
            work += [(operand, axes, divides) for operand in one.operands]
        elif one.opcode is Opcode.DIVIDE and _is_row(one.operand(1), axes, region):
            work += [(one.operand(0), axes, divides), (one.operand(1), axes, not divides)]
        else:
            found.scores.append(one)
    return found


def _is_row(x: HloInstruction, axes: Axes, region: ScoreRegion) -> bool:
    """Return whether the operand ``x`` of a score matrix with ``axes`` is constant along a row."""
    return x not in region.axes_of and region.columns not in source(x, axes)[1]


def _gradient(
    total: _Factors, weight: _Factors, output: Sink, region: ScoreRegion
) -> HloInstruction | None:
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
    if gradient not in region.products:
        return None
    factors = product_factors(gradient, region)
    values, axes = factors[1 - region.products[gradient].rows]
    return gradient if values is output.factor and axes == output.factor_axes else None


def _widen(gradient: HloInstruction, region: ScoreRegion, builder: Builder) -> None:
    """Make ``gradient`` an f32 product if it is only read as f32.

    Otherwise its elements would be rounded and the row sums not, although the two cancel where one weight is 1.
    """
    if not _is_read_wide(gradient, region):
        return
    builder.annotations = gradient.annotations.of_parts()
    lhs, rhs = gradient.operands
    wide = builder.dot(lhs, rhs, gradient.attrs_as(DotAttrs), PrimitiveType.F32)
    _replace_by(gradient, wide, builder)


def _is_read_wide(x: HloInstruction, region: ScoreRegion) -> bool:
    """Return whether ``x`` is only converted to f32, perhaps through views."""
    return all(
        _is_read_wide(user, region)
        if region.is_view(user)
        else user.opcode is Opcode.CONVERT and user.array_shape.element_type is PrimitiveType.F32
        for user in x.users
    )


def _replace_by(x: HloInstruction, wide: HloInstruction, builder: Builder) -> None:
    """Replace the conversions of ``x`` and of its views by ``wide`` and its views."""
    for user in x.users:
        if user.opcode is Opcode.CONVERT:
            builder.computation.replace(user, wide)
        else:
            shape = ArrayShape(PrimitiveType.F32, user.dims)
            view = builder.create(user.opcode, (wide,), user.attrs, shape=shape)
            _replace_by(user, view, builder)
    builder.computation.remove(x)


class _RowBuilder:
    """Builder of values per row, which have all score dimensions but the columns."""

    def __init__(self, builder: Builder, region: ScoreRegion) -> None:
        self._b = builder
        self._outer = OuterValues(builder)
        self._region = region
        self._dims = region.dims[:-1]

    def sum(
        self,
        total: Sink,
        factors: _Factors,
        weight: _Factors,
        output: Sink,
        gradient: HloInstruction,
    ) -> HloInstruction:
        """Return the value of ``total`` from the output and its gradient, which is a factor of ``gradient``."""
        b = self._b
        given = product_factors(gradient, self._region)[self._region.products[gradient].rows]
        outputs = [self._outer.along(*one)[0] for one in ((output.instruction, output.axes), given)]
        both = [b.as_type(x, PrimitiveType.F32) for x in outputs]
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
        converted = b.as_type(result, total.instruction.array_shape.element_type)
        return self._outer.restored(converted, total)

    def _row(self, row: _Row) -> HloInstruction:
        value, given = self._outer.along(*row)
        wide = self._b.as_type(value, PrimitiveType.F32)
        if given == tuple(range(len(self._dims))):
            return wide
        return self._b.broadcast(wide, given, self._dims)
