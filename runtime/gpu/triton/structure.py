"""Analysis of an attention fusion: its score products, the sinks of its scores, and its softmax.

Score dimensions are (b1..bn, s, t). *Score products* are dots of parameters whose results have these dimensions; a
value computed from one element by element is a *score*. *Sinks* are the dots and reductions that sum scores over t
(rows) or over s (columns). *Results* are computed from sinks, and may be transposed.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.gpu.triton.axes import Axes, Axis, AxisKind, tile_axes
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.triton.softmax import Softmax, softmax_of
from spmd.device import ReductionKind
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConstantAttrs, DimensionsAttrs, DotAttrs
from spmd.ops.dot import free_dims
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.ops.reduction import identity_value, reduction_kind

_LEAVES = (Opcode.PARAMETER, Opcode.CONSTANT, Opcode.IOTA)


@dataclass(frozen=True, eq=False)
class Sink:
    """Sum of scores over the loop's axes.

    scores: the operand that is a score. axes: axes of the result. other: the other operand of a dot, or None for a
    reduction. other_axes: its axes. kind: the reduction; a dot is a sum.
    """

    instruction: HloInstruction
    scores: HloInstruction
    axes: Axes
    other: HloInstruction | None = None
    other_axes: Axes = ()
    kind: ReductionKind = ReductionKind.SUM

    @property
    def acc_axes(self) -> Axes:
        """Axes of the accumulator, in the order of tiles."""
        return tile_axes(self.axes)


@dataclass(frozen=True, eq=False)
class AttentionStructure:
    """Structure of an attention fusion.

    axes: axes of the score dimensions. products: score products. softmax: the softmax that the fusion computes in one
    pass, or None.
    """

    fused: HloComputation
    axes: Axes
    products: tuple[HloInstruction, ...]
    sinks: tuple[Sink, ...]
    softmax: Softmax | None

    def axes_of_kind(self, kind: AxisKind) -> Axes:
        """Return the axes of the score dimensions that are of ``kind``, in the order of the dimensions."""
        return tuple(axis for axis in self.axes if axis.kind is kind)

    @property
    def grid(self) -> Axis:
        """Axis of which a program has one block."""
        return self.axes_of_kind(AxisKind.GRID)[0]

    @property
    def loop(self) -> Axis:
        """Axis whose blocks a program iterates over."""
        return self.axes_of_kind(AxisKind.LOOP)[0]

    @property
    def mode(self) -> str:
        """Name of the mode: online, rows or columns."""
        if self.softmax is not None:
            return "online"
        return "rows" if self.grid.number < self.loop.number else "columns"


def structures_of(fused: HloComputation) -> tuple[AttentionStructure, ...]:
    """Return the structures of ``fused``, one for all sinks that sum over the same dimensions.

    Raises NoTritonKernelError if it is no attention fusion.
    """
    scores, sinks = _scores_and_sinks(fused)
    dims = _score_dims(scores)
    by_summed: dict[tuple[int, ...], list[tuple[HloInstruction, int]]] = {}
    for sink, side in sinks:
        by_summed.setdefault(_summed_dims(sink, side), []).append((sink, side))
    softmax = softmax_of(fused, scores, [sink for sink, _ in sinks])
    if softmax is not None and set(by_summed) != {(len(dims) - 1,)}:
        raise NoTritonKernelError("a softmax with sinks that do not sum over the columns alone")
    products = tuple(x for x in scores if x.opcode is Opcode.DOT)
    found = []
    for summed, own in by_summed.items():
        axes = _score_axes(dims, summed)
        made = tuple(_sink(sink, side, axes) for sink, side in own)
        found.append(AttentionStructure(fused, axes, products, made, softmax))
    return tuple(found)


def _scores_and_sinks(
    fused: HloComputation,
) -> tuple[dict[HloInstruction, None], list[tuple[HloInstruction, int]]]:
    """Return all scores, and the sinks, each with the number of its operand that is a score."""
    scores: dict[HloInstruction, None] = {}
    results: set[HloInstruction] = set()
    roots = set(fused.root.elements)
    sinks: list[tuple[HloInstruction, int]] = []
    for x in fused.post_order():
        sides = [i for i, operand in enumerate(x.operands) if operand in scores]
        if x.opcode in _LEAVES or (x.opcode is Opcode.TUPLE and x is fused.root):
            continue
        if x.opcode in (Opcode.DOT, Opcode.REDUCE) and len(sides) == 1:
            sinks.append((x, sides[0]))
            results.add(x)
        elif x.opcode is Opcode.TRANSPOSE and x in roots and not sides:
            results.add(x)
        elif sides and x.opcode in ELEMENTWISE_OPS:
            scores[x] = None
        elif x.opcode is Opcode.DOT and results.isdisjoint(x.operands):
            if sides:
                raise NoTritonKernelError(f"{x.name}: a product of two scores")
            scores[x] = None
        elif not sides and (x.opcode is Opcode.BROADCAST or x.opcode in ELEMENTWISE_OPS):
            if not results.isdisjoint(x.operands):
                results.add(x)
        else:
            raise NoTritonKernelError(f"{x.name}: {x.opcode} in an attention fusion")
    return scores, sinks


def untransposed(result: HloInstruction) -> tuple[HloInstruction, tuple[int, ...]]:
    """Return the value of which ``result`` is a transpose, and the value's dimension for each one of ``result``."""
    if result.opcode is Opcode.TRANSPOSE:
        return result.operand(0), result.attrs_as(DimensionsAttrs).dimensions
    return result, tuple(range(len(result.dims)))


def _score_dims(scores: Iterable[HloInstruction]) -> tuple[int, ...]:
    """Return the sizes that all ``scores`` have."""
    found = {x.dims for x in scores}
    if len(found) != 1 or len(dims := found.pop()) < 2 or 0 in dims:
        raise NoTritonKernelError("scores of no, or of several, sizes")
    return dims


def _summed_dims(sink: HloInstruction, side: int) -> tuple[int, ...]:
    """Return the score dimensions that ``sink`` sums over, ascending."""
    if sink.opcode is Opcode.REDUCE:
        return tuple(sorted(sink.attrs_as(DimensionsAttrs).dimensions))
    attrs = sink.attrs_as(DotAttrs)
    return tuple(sorted((attrs.lhs_contracting, attrs.rhs_contracting)[side]))


def _score_axes(dims: tuple[int, ...], summed: tuple[int, ...]) -> Axes:
    """Return the axes of the score dimensions, of which the sinks sum over ``summed``."""
    last = len(dims) - 1
    if (last in summed) == (last - 1 in summed):
        raise NoTritonKernelError("sinks that sum over both rows and columns, or over neither")

    def kind(d: int) -> AxisKind:
        if d < last - 1:
            return AxisKind.STEP if d in summed else AxisKind.BATCH
        return AxisKind.LOOP if d in summed else AxisKind.GRID

    return tuple(Axis(kind(d), size, d) for d, size in enumerate(dims))


def _sink(x: HloInstruction, side: int, axes: Axes) -> Sink:
    """Return the sink ``x``, whose operand ``side`` is a score with ``axes``."""
    if x.opcode is Opcode.REDUCE:
        return _reduction(x, axes)
    attrs, other = x.attrs_as(DotAttrs), x.operand(1 - side)
    batch = (attrs.lhs_batch, attrs.rhs_batch)
    contracting = (attrs.lhs_contracting, attrs.rhs_contracting)
    own: list[Axis] = [Axis(AxisKind.DEPTH, size) for size in other.dims]
    for pairs in (batch, contracting):
        for d, of_scores in zip(pairs[1 - side], pairs[side], strict=True):
            own[d] = axes[of_scores]
    free = [
        [each[d] for d in free_dims(len(each), batch[i], contracting[i])]
        for i, each in enumerate((axes, own) if side == 0 else (own, axes))
    ]
    if len(free[1 - side]) > 1:
        raise NoTritonKernelError(f"{x.name}: a factor with several free dimensions")
    result = (*(axes[d] for d in batch[side]), *free[0], *free[1])
    return Sink(x, x.operand(side), result, other, tuple(own))


def _reduction(x: HloInstruction, axes: Axes) -> Sink:
    kind = reduction_kind(x.to_apply)
    initial = x.operand(1)
    if kind not in (ReductionKind.SUM, ReductionKind.MAX) or x.num_operands != 2:
        raise NoTritonKernelError(f"{x.name}: a reduction that is no sum and no maximum")
    value = initial.attrs_as(ConstantAttrs).literal if initial.opcode is Opcode.CONSTANT else None
    identity = identity_value(kind, initial.array_shape.element_type)
    if value is None or value.value() != identity:
        raise NoTritonKernelError(f"{x.name}: an initial value that is not the neutral element")
    dimensions = x.attrs_as(DimensionsAttrs).dimensions
    remaining = tuple(axis for d, axis in enumerate(axes) if d not in dimensions)
    return Sink(x, x.operand(0), remaining, kind=kind)
