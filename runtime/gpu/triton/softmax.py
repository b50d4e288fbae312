"""The softmax of an attention fusion that computes it in one pass over the columns of scores.

The row maximum m changes from block to block. Sums of exponentials are rescaled when it does (FlashAttention, Dao et
al. 2022). What divides or multiplies a row is applied to the sums after the last block.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from runtime.gpu.triton.refusal import NoTritonKernelError
from spmd.analysis.attention_mask import constant_value, is_of_rows
from spmd.device import ReductionKind
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import reduction_kind


@dataclass(frozen=True, eq=False)
class Softmax:
    """Exponentials exp(x - y) of scores x, where y is constant along rows, usually the row maximum m.

    scores: x. maximum: the reduction to m. exponential: the instruction exp(x - y). shift: y if it is another value
    than m, otherwise None. factors: for each sink of the exponentials, the products and quotients with values of rows
    between the exponentials and the sink, the innermost first. They are applied to the sink's result.
    """

    scores: HloInstruction
    maximum: HloInstruction
    exponential: HloInstruction
    shift: HloInstruction | None
    factors: Mapping[HloInstruction, tuple[RowFactor, ...]]


@dataclass(frozen=True, eq=False)
class RowFactor:
    """Product or quotient ``instruction`` of ``scores`` and ``rows``, which is constant along rows."""

    instruction: HloInstruction
    scores: HloInstruction
    rows: HloInstruction


def softmax_of(
    fused: HloComputation, scores: Collection[HloInstruction], sinks: Sequence[HloInstruction]
) -> Softmax | None:
    """Return the softmax of ``fused``, or None if no score depends on a sink.

    Raises NoTritonKernelError if scores depend on sinks in another way than in a softmax.
    """
    maxima = [x for x in sinks if _is_maximum(x)]
    if not _need_results(scores, sinks):
        return None
    if len(maxima) != 1:
        raise NoTritonKernelError(f"scores that depend on {len(maxima)} maxima")
    (maximum,) = maxima
    others = [x for x in sinks if x is not maximum]
    found = [x for x in fused.post_order() if x in scores and _is_exponential(x, maximum)]
    if len(found) != 1:
        raise NoTritonKernelError(f"{len(found)} exponentials of scores less a value of rows")
    exponential = found[0]
    factors = {sink: _factors(sink, exponential, scores) for sink in others}
    shift: HloInstruction | None = exponential.operand(0).operand(1)
    if shift is not None and _broadcast_rows(shift) is maximum:
        shift = None
    return Softmax(maximum.operand(0), maximum, exponential, shift, factors)


def _need_results(scores: Collection[HloInstruction], sinks: Collection[HloInstruction]) -> bool:
    """Return whether a score is computed from the result of a sink."""
    work = list(sinks)
    seen = set(work)
    while work:
        for user in work.pop().users:
            if user in scores:
                return True
            if user not in seen:
                seen.add(user)
                work.append(user)
    return False


def _is_maximum(x: HloInstruction) -> bool:
    return x.opcode is Opcode.REDUCE and reduction_kind(x.to_apply) is ReductionKind.MAX


def _is_exponential(x: HloInstruction, maximum: HloInstruction) -> bool:
    """Return whether ``x`` is exp(y - rows), where y are the scores that ``maximum`` reduces."""
    if x.opcode is not Opcode.EXPONENTIAL or x.operand(0).opcode is not Opcode.SUBTRACT:
        return False
    scores, rows = x.operand(0).operands
    return _unwidened(scores) is _unwidened(maximum.operand(0)) and is_of_rows(rows)


def _unwidened(x: HloInstruction) -> HloInstruction:
    """Return the value behind conversions of ``x`` that change no number."""
    while _widens(x):
        x = x.operand(0)
    return x


def _widens(x: HloInstruction) -> bool:
    if x.opcode is not Opcode.CONVERT:
        return False
    return x.array_shape.element_type is x.operand(0).array_shape.element_type.accumulator


def _broadcast_rows(x: HloInstruction) -> HloInstruction:
    """Return the value of rows that ``x`` broadcasts, behind conversions to wider types and maxima with -inf."""
    while True:
        if x.opcode is Opcode.BROADCAST or _widens(x):
            x = x.operand(0)
        elif x.opcode is Opcode.MAXIMUM and any(map(_is_least, x.operands)):
            x = next(operand for operand in x.operands if not _is_least(operand))
        else:
            return x


def _is_least(x: HloInstruction) -> bool:
    value = constant_value(x)
    return value is not None and value == -np.inf


def _factors(
    sink: HloInstruction, exponential: HloInstruction, scores: Collection[HloInstruction]
) -> tuple[RowFactor, ...]:
    """Return the factors of rows between ``exponential`` and ``sink``, the innermost first.

    Raises NoTritonKernelError if the sink's scores are not proportional to the exponentials.
    """
    x = next(operand for operand in sink.operands if operand in scores)
    found: list[RowFactor] = []
    while x is not exponential:
        inner = _proportional_to(x, scores)
        if inner is None:
            raise NoTritonKernelError(f"{x.name}: not proportional to the exponentials")
        if x.opcode in (Opcode.MULTIPLY, Opcode.DIVIDE):
            rows = x.operand(1) if x.operand(0) is inner else x.operand(0)
            if is_of_rows(rows):
                found.insert(0, RowFactor(x, inner, rows))
        x = inner
    return tuple(found)


def _proportional_to(
    x: HloInstruction, scores: Collection[HloInstruction]
) -> HloInstruction | None:
    """Return the only score that ``x`` is proportional to, element by element, or None."""
    inside = [operand for operand in x.operands if operand in scores]
    if len(inside) != 1:
        return None
    if x.opcode in (Opcode.CONVERT, Opcode.NEGATE, Opcode.MULTIPLY):
        return inside[0]
    if x.opcode is Opcode.DIVIDE and inside[0] is x.operand(0):
        return inside[0]
    if x.opcode is Opcode.SELECT and any(constant_value(y) == 0 for y in x.operands[1:]):
        return inside[0]
    return None
