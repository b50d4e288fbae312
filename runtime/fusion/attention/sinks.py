"""Sinks of score matrices: products and reductions that contract their columns or their rows."""

from __future__ import annotations

from collections.abc import Container

from runtime.fusion.element_operations import is_plain
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
class Sink:
    """Product or reduction of the score matrix that is its operand ``number``.

    of_rows: it contracts the columns, so that it gives a result per row; otherwise it contracts the rows, and perhaps
    batch dimensions.
    """

    instruction: HloInstruction
    number: int
    of_rows: bool

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


def sink_of(
    user: HloInstruction, scores: HloInstruction, region: Container[HloInstruction]
) -> Sink | None:
    """Return ``user`` as the sink of ``scores``, or None if it needs the score matrix in memory.

    region: the score matrices of the same region.
    """
    if not is_plain(user):
        return None
    if user.opcode is Opcode.DOT:
        return _product(user, scores, region)
    if user.opcode is Opcode.REDUCE:
        return _reduction(user)
    return None


def _product(
    dot: HloInstruction, scores: HloInstruction, region: Container[HloInstruction]
) -> Sink | None:
    number = dot.operands.index(scores)
    other = dot.operand(1 - number)
    types = {x.array_shape.element_type for x in (dot, *dot.operands)}
    if other in region or other is scores or not types <= FLOATS or dot.attrs_as(DotAttrs).extra:
        return None
    free = factor_dims(dot, 1 - number).free
    if len(free) != 1 or not 0 < other.dims[free[0]] <= MAX_DEPTH:
        return None
    mine, columns = factor_dims(dot, number), len(scores.dims) - 1
    if mine.contracting == (columns,) and columns - 1 in mine.free:
        return Sink(dot, number, of_rows=True)
    if columns - 1 in mine.contracting and columns in mine.free:
        return Sink(dot, number, of_rows=False)
    return None


def _reduction(reduce: HloInstruction) -> Sink | None:
    if reduce.num_operands != 2:
        return None
    kind = reduction_kind(reduce.to_apply)
    shape = reduce.array_shape
    if kind not in _KINDS or shape.element_type not in FLOATS:
        return None
    if not _is_identity(reduce.operand(1), kind, shape):
        return None
    dims, columns = reduce.attrs_as(DimensionsAttrs).dimensions, len(reduce.operand(0).dims) - 1
    if dims == (columns,):
        return Sink(reduce, 0, of_rows=True)
    if columns - 1 in dims and columns not in dims:
        return Sink(reduce, 0, of_rows=False)
    return None


def _is_identity(start: HloInstruction, kind: ReductionKind, shape: ArrayShape) -> bool:
    """Return whether ``start`` is the constant that does not change a reduction of ``kind``."""
    if start.opcode is not Opcode.CONSTANT or start.dims:
        return False
    literal = start.attrs_as(ConstantAttrs).literal
    if literal is None or literal.array is None:
        return False
    return bool(literal.array == identity_value(kind, shape.element_type))
