"""Sinks of score matrices: products and reductions that contract their columns or their rows."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.fusion.attention.score_axes import Axes, product_axes
from runtime.fusion.element_operations import is_plain, splat_constant
from runtime.fusion.refusal import NoEmitterError
from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ConstantAttrs, DimensionsAttrs, DotAttrs
from spmd.ops.dot import free_dims
from spmd.ops.reduction import identity_value, reduction_kind
from spmd.shape import ArrayShape, PrimitiveType

#: Largest depth of a product of queries and keys, and largest number of features of the values.
MAX_DEPTH = 256
#: Element types of the operands and results of products and reductions.
FLOATS = frozenset({PrimitiveType.F32, PrimitiveType.BF16, PrimitiveType.F16})
_KINDS = (ReductionKind.MAX, ReductionKind.SUM)


@dataclass(frozen=True)
class FactorDims:
    """Dimension numbers of one factor of a product."""

    batch: tuple[int, ...]
    contracting: tuple[int, ...]
    free: tuple[int, ...]


def factor_dims(dot: HloInstruction, number: int) -> FactorDims:
    """Return the dimension numbers of operand ``number`` of ``dot``."""
    attrs = dot.attrs_as(DotAttrs)
    batch = (attrs.lhs_batch, attrs.rhs_batch)[number]
    contracting = (attrs.lhs_contracting, attrs.rhs_contracting)[number]
    rank = len(dot.operand(number).dims)
    return FactorDims(batch, contracting, free_dims(rank, batch, contracting))


@dataclass(frozen=True)
class Sink:
    """Product or reduction of a score matrix.

    number: number of the operand that is the score matrix. rank: number of the score dimensions. contracted: those of
    them that are contracted. axes: axes of the result; the features of a product are numbered after the score
    dimensions. factor_axes: axes of the other factor of a product.
    """

    instruction: HloInstruction
    number: int
    rank: int
    contracted: tuple[int, ...]
    axes: Axes
    factor_axes: Axes = ()

    @property
    def of_rows(self) -> bool:
        """Return whether the columns are contracted, which gives a result per row; otherwise it is one per column."""
        return self.contracted == (self.rank - 1,)

    @property
    def scores(self) -> HloInstruction:
        """Return the score matrix."""
        return self.instruction.operand(self.number)

    @property
    def factor(self) -> HloInstruction:
        """Return the other factor of a product."""
        return self.instruction.operand(1 - self.number)

    @property
    def kind(self) -> ReductionKind | None:
        """Return the kind of a reduction; None for a product."""
        if self.instruction.opcode is Opcode.DOT:
            return None
        return reduction_kind(self.instruction.to_apply)


def sink_of(
    user: HloInstruction, scores: HloInstruction, axes_of: Mapping[HloInstruction, Axes], rank: int
) -> Sink | None:
    """Return ``user`` as the sink of ``scores``, or None if it needs the score matrix in memory.

    axes_of: axes of the score matrices of the same region. rank: number of their dimensions.
    """
    if not is_plain(user):
        return None
    sink = None
    if user.opcode is Opcode.DOT:
        sink = _product(user, scores, axes_of, rank)
    if user.opcode is Opcode.REDUCE:
        sink = _reduction(user, axes_of[scores], rank)
    if sink is None or sink.of_rows:
        return sink
    rows, columns = rank - 2, rank - 1
    return sink if rows in sink.contracted and columns not in sink.contracted else None


def _product(
    dot: HloInstruction,
    scores: HloInstruction,
    axes_of: Mapping[HloInstruction, Axes],
    rank: int,
) -> Sink | None:
    number = dot.operands.index(scores)
    other = dot.operand(1 - number)
    types = {x.array_shape.element_type for x in (dot, *dot.operands)}
    if other in axes_of or not types <= FLOATS or dot.attrs_as(DotAttrs).extra:
        return None
    axes, mine, theirs = axes_of[scores], factor_dims(dot, number), factor_dims(dot, 1 - number)
    features = [d for d in theirs.free if other.dims[d] != 1] or [*theirs.free[:1]]
    batch, contracted = ([axes[d] for d in dims] for dims in (mine.batch, mine.contracting))
    if len(features) != 1 or not 0 < other.dims[features[0]] <= MAX_DEPTH:
        return None
    if not {rank - 2, rank - 1}.isdisjoint(batch):
        return None
    free = tuple(axes[d] for d in mine.free)
    other_free = tuple(rank if d in features else None for d in theirs.free)
    both = (free, other_free) if number == 0 else (other_free, free)
    known = (*batch, *contracted)
    return Sink(
        dot,
        number,
        rank,
        _present(contracted),
        (*batch, *both[0], *both[1]),
        product_axes(known, theirs.batch, theirs.contracting, other_free),
    )


def _reduction(reduce: HloInstruction, axes: Axes, rank: int) -> Sink | None:
    if reduce.num_operands != 2:
        return None
    kind = reduction_kind(reduce.to_apply)
    shape = reduce.array_shape
    if kind not in _KINDS or shape.element_type not in FLOATS:
        return None
    if not _is_identity(reduce.operand(1), kind, shape):
        return None
    dims = reduce.attrs_as(DimensionsAttrs).dimensions
    remaining = tuple(axis for d, axis in enumerate(axes) if d not in dims)
    return Sink(reduce, 0, rank, _present([axes[d] for d in dims]), remaining)


def _present(axes: list[int | None]) -> tuple[int, ...]:
    """Return the axes of dimensions other than of size 1, in ascending order."""
    return tuple(sorted(axis for axis in axes if axis is not None))


def _is_identity(start: HloInstruction, kind: ReductionKind, shape: ArrayShape) -> bool:
    """Return whether ``start`` is the constant that does not change a reduction of ``kind``."""
    return splat(start) == identity_value(kind, shape.element_type)


def splat(x: HloInstruction) -> object | None:
    """Return the value of all elements of a constant; None if they differ, and for other instructions."""
    if x.opcode is not Opcode.CONSTANT:
        return None
    try:
        splat_constant(x)
    except NoEmitterError:
        return None
    literal = x.attrs_as(ConstantAttrs).literal
    return None if literal is None else next(literal.value().flat)
