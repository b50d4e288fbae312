"""Regions of score matrices: products of queries and keys, and the values that are computed from them elementwise.

The last two of the score dimensions are the rows s (queries) and the columns t (keys); all others are batch dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runtime.fusion.attention.axis_order import ScoreProduct, canonical_order, score_products
from runtime.fusion.attention.score_axes import Axes, operand_axes, result_axes, source
from runtime.fusion.attention.sinks import FLOATS, Sink, sink_of, splat
from runtime.fusion.element_operations import is_plain
from runtime.program.attention_operations import has_tile_operation
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType

#: Element types of score matrices and masks.
SCORE_TYPES = FLOATS | {
    *(PrimitiveType.PRED, PrimitiveType.S8, PrimitiveType.S16, PrimitiveType.S32),
    *(PrimitiveType.U8, PrimitiveType.U16, PrimitiveType.U32),
}
_VIEWS = (Opcode.TRANSPOSE, Opcode.RESHAPE)
#: Operations through which a softmax's exponentials stay factors of a value.
_KEEPS_FACTORS = (*_VIEWS, Opcode.CONVERT, Opcode.MULTIPLY, Opcode.DIVIDE, Opcode.SELECT)


@dataclass(frozen=True, eq=False)
class ScoreRegion:
    """Score matrices that products, elementwise operations and views connect, and all their other uses.

    dims: sizes of the score dimensions. axes_of: the score matrices in post-order, with their axes.
    """

    dims: tuple[int, ...]
    axes_of: dict[HloInstruction, Axes]
    products: Mapping[HloInstruction, ScoreProduct]
    sinks: tuple[Sink, ...]

    @property
    def columns(self) -> int:
        """Return the number of the dimension t."""
        return len(self.dims) - 1

    def is_view(self, x: HloInstruction) -> bool:
        """Return whether the score matrix ``x`` is a view of another one."""
        return x.opcode in _VIEWS

    def is_masked(self, x: HloInstruction) -> bool:
        """Return whether the score matrix ``x`` selects elements of another one and is 0 elsewhere."""
        if x.opcode is not Opcode.SELECT or x.operand(1) not in self.axes_of:
            return False
        zeros = x.operand(2)
        return splat(source(zeros, self.axes_of[x] if zeros.dims else ())[0]) == 0

    def unviewed(self, x: HloInstruction) -> HloInstruction:
        """Return the score matrix of which ``x`` is a view."""
        while x in self.axes_of and self.is_view(x):
            x = x.operand(0)
        return x


def computes_scores(x: HloInstruction) -> bool:
    """Return whether ``x`` is an elementwise operation that a kernel of score matrices can compute."""
    return (
        all(
            isinstance(one.shape, ArrayShape) and one.shape.element_type in SCORE_TYPES
            for one in (x, *x.operands)
        )
        and is_plain(x)
        and has_tile_operation(x)
    )


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
    """Return the score products and all that views and elementwise operations make of them, in connected sets."""
    set_of: dict[HloInstruction, list[HloInstruction]] = {}
    for x in order:
        if score_products(x):
            set_of[x] = [x]
            continue
        read = [one for one in x.operands if one in set_of]
        if not read or not (_is_view(x) or computes_scores(x)):
            continue
        mine: list[HloInstruction] = []
        for one in read:
            other = set_of[one]
            if other is not mine:
                small, mine = sorted((mine, other), key=len)
                mine += small
                set_of.update(dict.fromkeys(small, mine))
        mine.append(x)
        set_of[x] = mine
    distinct = {id(one): one for one in set_of.values()}
    position = {x: n for n, x in enumerate(set_of)}
    return [
        sorted(one, key=position.__getitem__)
        for one in distinct.values()
        if any(x.opcode is Opcode.EXPONENTIAL for x in one)
    ]


def _is_view(x: HloInstruction) -> bool:
    return (
        x.opcode in _VIEWS
        and is_plain(x)
        and result_axes(x, tuple(range(len(x.operand(0).dims)))) is not None
    )


def _region(values: Sequence[HloInstruction]) -> ScoreRegion | None:
    """Return the region of ``values``, or None if one of them is needed in memory."""
    found = _numbered(values)
    columns = None if found is None else _softmax_columns(found)
    order = None if found is None or columns is None else canonical_order(found, columns)
    if found is None or order is None:
        return None
    sizes = {a: n for x, axes in found.items() for a, n in zip(axes, x.dims, strict=True)}
    new = {axis: n for n, axis in enumerate(order)}
    axes_of = {x: tuple(None if a is None else new[a] for a in found[x]) for x in values}
    products = {
        x: one
        for x in values
        for one in score_products(x)
        if axes_of[x][one.column] == len(order) - 1
    }
    sinks: dict[HloInstruction, Sink] = {}
    for x in values:
        if x.is_root:
            return None
        for user in x.users:
            if user in axes_of:
                continue
            sink = sink_of(user, x, axes_of, len(order))
            if sink is None:
                return None
            sinks[user] = sink
    return ScoreRegion(tuple(sizes[a] for a in order), axes_of, products, tuple(sinks.values()))


def _numbered(values: Sequence[HloInstruction]) -> dict[HloInstruction, Axes] | None:
    """Return axes of ``values``, numbered as the long dimensions of the first one; None if they contradict."""
    members = set(values)
    first = values[0]
    number = iter(range(len(first.dims)))
    found: dict[HloInstruction, Axes] = {
        first: tuple(None if n == 1 else next(number) for n in first.dims)
    }
    work = [first]
    while work:
        x = work.pop()
        users = [user for user in x.users if user in members and user.opcode is not Opcode.DOT]
        operands = [one for one in x.operands if one in members and x.opcode is not Opcode.DOT]
        for other in (*users, *operands):
            axes = _neighbour_axes(x, found[x], other)
            if axes is None or found.get(other, axes) != axes:
                return None
            if other not in found:
                found[other] = axes
                work.append(other)
    return found


def _neighbour_axes(x: HloInstruction, axes: Axes, other: HloInstruction) -> Axes | None:
    """Return the axes of ``other``, an operand or a user of ``x`` with ``axes``; None if it has none."""
    if other in x.users and other.opcode in _VIEWS:
        return result_axes(other, axes)
    if other in x.operands and x.opcode in _VIEWS:
        return operand_axes(x, axes)
    return axes if other.dims == x.dims else None


def _softmax_columns(axes_of: Mapping[HloInstruction, Axes]) -> int | None:
    """Return the one dimension along which the shifts of all softmaxes do not vary; None if there is none."""
    columns = {
        tuple(axis for axis in axes if axis is not None and axis not in shift)
        for x, axes in axes_of.items()
        if (shift := _shift_axes(x, axes_of)) is not None
    }
    if len(columns) != 1 or len(only := columns.pop()) != 1:
        return None
    return only[0]


def _shift_axes(x: HloInstruction, axes_of: Mapping[HloInstruction, Axes]) -> Axes | None:
    """Return the axes of what scores are shifted by before the exponential ``x``; None if ``x`` is something else."""
    if x.opcode is not Opcode.EXPONENTIAL or x.operand(0).opcode is not Opcode.SUBTRACT:
        return None
    scores, shift = x.operand(0).operands
    if scores not in axes_of or shift in axes_of:
        return None
    axes = source(shift, axes_of[x])[1]
    present = {axis for axis in axes_of[x] if axis is not None}
    return axes if len(present) == len(present.intersection(axes)) + 1 else None


def is_softmax_exponential(x: HloInstruction, region: ScoreRegion) -> bool:
    """Return whether ``x`` is the exponential of the difference between scores and a value per row."""
    return _shift_axes(x, region.axes_of) is not None


def _has_softmax(region: ScoreRegion) -> bool:
    """Return whether exponentials of a softmax are factors of an operand of a product that leaves ``region``."""
    products = {s.instruction for s in region.sinks if s.instruction.opcode is Opcode.DOT}
    work = [x for x in region.axes_of if is_softmax_exponential(x, region)]
    seen = set(work)
    while work:
        x = work.pop()
        for user in x.users:
            if user in products:
                return True
            if user in region.axes_of and user not in seen and user.opcode in _KEEPS_FACTORS:
                seen.add(user)
                work.append(user)
    return False
