"""Regions of score matrices: products of queries and keys, and the values that are computed from them elementwise.

The last two of the score dimensions are the rows s (queries) and the columns t (keys); all others are batch dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime.fusion.attention.score_axes import all_axes, source, varies_along
from runtime.fusion.attention.sinks import FLOATS, MAX_DEPTH, Sink, sink_of
from runtime.fusion.element_operations import is_elementwise, is_plain
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.ops.dot import free_dims
from spmd.shape import ArrayShape, PrimitiveType

#: Element types of score matrices and masks.
SCORE_TYPES = FLOATS | {
    *(PrimitiveType.PRED, PrimitiveType.S8, PrimitiveType.S16, PrimitiveType.S32),
    *(PrimitiveType.U8, PrimitiveType.U16, PrimitiveType.U32),
}
_NOT_COMPUTED = frozenset(
    {
        *(Opcode.COPY, Opcode.BITCAST_CONVERT, Opcode.MAP, Opcode.DOMAIN, Opcode.ADD_DEPENDENCY),
        *(Opcode.REDUCE_PRECISION, Opcode.STOCHASTIC_CONVERT),
    }
)
#: Operations through which a softmax's exponentials stay factors of a value.
_KEEPS_FACTORS = (Opcode.CONVERT, Opcode.MULTIPLY, Opcode.DIVIDE, Opcode.SELECT)


@dataclass(frozen=True, eq=False)
class ScoreRegion:
    """Score matrices of sizes ``dims`` that elementwise operations connect, in post-order, and all their other uses."""

    dims: tuple[int, ...]
    values: dict[HloInstruction, None]
    sinks: tuple[Sink, ...]

    @property
    def columns(self) -> int:
        """Return the number of the dimension t."""
        return len(self.dims) - 1


def computes_scores(x: HloInstruction) -> bool:
    """Return whether ``x`` is an elementwise operation that a kernel of score matrices can compute."""
    if x.opcode in _NOT_COMPUTED or not is_elementwise(x.opcode) or not is_plain(x):
        return False
    return all(
        isinstance(one.shape, ArrayShape) and one.shape.element_type in SCORE_TYPES
        for one in (x, *x.operands)
    )


def is_score_product(x: HloInstruction) -> bool:
    """Return whether ``x`` is a product of rows and columns along one short dimension.

    Its last two dimensions are the last free dimension of the left factor and the only one of the right factor.
    """
    if x.opcode is not Opcode.DOT or not is_plain(x) or len(x.dims) < 2 or 1 in x.dims[-2:]:
        return False
    attrs, (lhs, rhs) = x.attrs_as(DotAttrs), x.operands
    if attrs.extra or len(attrs.lhs_contracting) != 1:
        return False
    if not {one.array_shape.element_type for one in (x, lhs, rhs)} <= FLOATS:
        return False
    columns = free_dims(len(rhs.dims), attrs.rhs_batch, attrs.rhs_contracting)
    rows = free_dims(len(lhs.dims), attrs.lhs_batch, attrs.lhs_contracting)
    depth = lhs.dims[attrs.lhs_contracting[0]]
    return len(columns) == 1 and len(rows) >= 1 and 0 < depth <= MAX_DEPTH and 0 not in x.dims


def score_regions(order: Iterable[HloInstruction]) -> list[ScoreRegion]:
    """Return the regions of one computation of which no score matrix is needed in memory.

    order: its instructions, operands first. A region contains a softmax: exponentials of the difference between scores
    and a value per row, which become factors of a product with values or gradients.
    """
    accepted: list[ScoreRegion] = []
    members: set[HloInstruction] = set()
    for values in _connected(order):
        region = _region(values)
        if region is None or not _has_softmax(region):
            continue
        read = {sink.instruction for sink in region.sinks}
        if members.isdisjoint(values) and members.isdisjoint(read):
            accepted.append(region)
            members.update(values, read)
    return accepted


def _connected(order: Iterable[HloInstruction]) -> list[list[HloInstruction]]:
    """Return the score products and what elementwise operations compute from them, in connected sets."""
    set_of: dict[HloInstruction, list[HloInstruction]] = {}
    for x in order:
        if is_score_product(x):
            set_of[x] = [x]
            continue
        if not any(one in set_of for one in x.operands) or not computes_scores(x):
            continue
        mine: list[HloInstruction] = []
        for one in x.operands:
            other = set_of.get(one)
            if other is None or other is mine or one.dims != x.dims:
                continue
            small, mine = sorted((mine, other), key=len)
            mine += small
            set_of.update(dict.fromkeys(small, mine))
        if mine:
            mine.append(x)
            set_of[x] = mine
    distinct = {id(one): one for one in set_of.values()}
    position = {x: n for n, x in enumerate(set_of)}
    return [sorted(one, key=position.__getitem__) for one in distinct.values()]


def _region(values: Sequence[HloInstruction]) -> ScoreRegion | None:
    """Return the region of ``values``, or None if one of them is needed in memory."""
    members = dict.fromkeys(values)
    sinks: dict[HloInstruction, Sink] = {}
    for x in values:
        if x.is_root:
            return None
        for user in x.users:
            if user in members:
                continue
            sink = sink_of(user, x, members)
            if sink is None:
                return None
            sinks[user] = sink
    return ScoreRegion(values[0].dims, members, tuple(sinks.values()))


def _has_softmax(region: ScoreRegion) -> bool:
    """Return whether exponentials of a softmax are factors of an operand of a product that leaves ``region``."""
    products = {s.instruction for s in region.sinks if s.instruction.opcode is Opcode.DOT}
    work = [x for x in region.values if is_softmax_exponential(x, region)]
    seen = set(work)
    while work:
        x = work.pop()
        for user in x.users:
            if user in products:
                return True
            if user in region.values and user not in seen and user.opcode in _KEEPS_FACTORS:
                seen.add(user)
                work.append(user)
    return False


def is_softmax_exponential(x: HloInstruction, region: ScoreRegion) -> bool:
    """Return whether ``x`` is the exponential of the difference between scores and a value per row."""
    if x.opcode is not Opcode.EXPONENTIAL or x.operand(0).opcode is not Opcode.SUBTRACT:
        return False
    scores, shift = x.operand(0).operands
    if scores not in region.values or shift in region.values:
        return False
    return not varies_along(*source(shift, all_axes(shift)), region.columns)
