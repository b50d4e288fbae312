"""Writer of the computation of an attention fusion: sinks of score matrices, and what they are computed from.

All values inside have the score dimensions, except rows that sinks compute. Outside values are parameters that are
broadcast along these dimensions. Masks are computed inside from iotas, scalars and values per row or column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from runtime.fusion.attention.score_axes import Axes, operand_axes, product_axes, source
from runtime.fusion.attention.scores import ScoreRegion, computes_scores
from runtime.fusion.attention.sinks import Sink, factor_dims, splat
from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs, DotAttrs, IotaAttrs

#: Largest number of instructions that a mask is computed from inside of a fusion.
MAX_MASK = 48


class OuterValues:
    """Views of values outside of fusions, without dimensions of size 1. The fusions of a region share them."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._known: dict[tuple[HloInstruction, Axes, tuple[int, ...]], HloInstruction] = {}

    def along(self, x: HloInstruction, axes: Axes) -> tuple[HloInstruction, tuple[int, ...]]:
        """Return ``x`` with its dimensions in the order of its axes, and these."""
        given = tuple(sorted(axis for axis in axes if axis is not None))
        return self.ordered(x, axes, given), given

    def factor(
        self, x: HloInstruction, axes: Axes, free: Collection[int]
    ) -> tuple[HloInstruction, tuple[int, ...]]:
        """Return a factor of a product whose ``free`` dimensions are in the order of their axes, and its axes."""
        given = tuple(axis for axis in axes if axis is not None)
        apart = [axis for axis in given if axis in free]
        if apart != sorted(apart):
            return self.along(x, axes)
        return self.ordered(x, axes, given), given

    def ordered(self, x: HloInstruction, axes: Axes, given: tuple[int, ...]) -> HloInstruction:
        """Return ``x`` with the dimensions whose axes are ``given``, in this order."""
        present = [axis for axis in axes if axis is not None]
        order = tuple(present.index(axis) for axis in given)
        if len(present) == len(axes) and order == tuple(range(len(axes))):
            return x
        if (x, axes, order) not in self._known:
            b = self._builder
            long = b.reshape_to(
                x, [n for n, axis in zip(x.dims, axes, strict=True) if axis is not None]
            )
            self._known[x, axes, order] = b.transpose_by(long, order)
        return self._known[x, axes, order]

    def restored(self, result: HloInstruction, sink: Sink) -> HloInstruction:
        """Return ``result``, whose dimensions are in the order of their axes, with the dimensions of ``sink``."""
        present = [axis for axis in sink.axes if axis is not None]
        given = _result_axes(sink)
        b = self._builder
        ordered = b.transpose_by(result, [given.index(axis) for axis in present])
        return b.reshape_to(ordered, sink.instruction.dims)


class FusedScores:
    """A fused computation that is being written. ``inputs`` are its operands, with their parameters."""

    def __init__(
        self, region: ScoreRegion, computation: HloComputation, outer: OuterValues
    ) -> None:
        self.inputs: dict[HloInstruction, HloInstruction] = {}
        self.computation = computation
        self._region = region
        self._outer = outer
        self._b = Builder(computation)
        self._copies: dict[HloInstruction, HloInstruction] = {}
        self._along: dict[tuple[HloInstruction, Axes], HloInstruction] = {}

    @property
    def read(self) -> Iterable[HloInstruction]:
        """Return the instructions outside that have a copy inside, or of which a view is inside."""
        return dict.fromkeys((*self._copies, *(x for x, _ in self._along)))

    def write(
        self, sinks: Iterable[Sink], position: Mapping[HloInstruction, int]
    ) -> dict[Sink, HloInstruction]:
        """Write ``sinks`` and the score matrices that they need, in the order of ``position``.

        Returns the results, whose dimensions are in the order of their axes.
        """
        sink_of = {sink.instruction: sink for sink in sinks}
        needed = dict.fromkeys(sink.scores for sink in sink_of.values())
        work = list(needed)
        while work:
            x = work.pop()
            operands = () if x.opcode is Opcode.DOT else x.operands
            new = [one for one in operands if one in self._region.axes_of and one not in needed]
            needed.update(dict.fromkeys(new))
            work += new
        for x in sorted((*needed, *sink_of), key=position.__getitem__):
            sink = sink_of.get(x)
            self._copies[x] = self._score(x) if sink is None else self._sink(sink)
        return {sink: self._copies[x] for x, sink in sink_of.items()}

    def _copy(self, x: HloInstruction, operands: Iterable[HloInstruction]) -> HloInstruction:
        """Add a copy of the elementwise operation or constant ``x`` with the sizes of ``operands``."""
        operands = tuple(operands)
        shape = x.array_shape.without_layout()
        copy = x.clone(shape.with_dims(operands[0].dims if operands else x.dims), operands)
        copy.sharding = None
        return self.computation.add(copy)

    # ---- products and reductions
    def _sink(self, sink: Sink) -> HloInstruction:
        x, scores = sink.instruction, self._copies[sink.scores]
        self._b.annotations = x.annotations
        if x.opcode is not Opcode.DOT:
            start = self._copy(x.operand(1), ())
            dims = DimensionsAttrs(sink.contracted)
            return self._b.create(Opcode.REDUCE, (scores, start), dims, calls=x.called_computations)
        rank = len(self._region.dims)
        factor, axes = self._outer.factor(sink.factor, sink.factor_axes, ())
        batch = [n for n in range(rank) if n in axes and n not in sink.contracted]
        return self._dot(
            x,
            (scores, self._parameter(factor)),
            (tuple(range(rank)), axes),
            batch,
            sink.contracted,
            is_swapped=sink.number == 1,
        )

    def _product(self, x: HloInstruction) -> HloInstruction:
        """Return the copy of the product ``x``, with the rows on the left and its dimensions in the region's order."""
        rank = len(self._region.dims)
        number = self._region.products[x].rows
        factors = product_factors(x, self._region)
        batch = [n for n in range(rank) if all(n in axes for _, axes in factors)]
        free = set(range(rank)).difference(batch)
        rows = self._outer.factor(*factors[number], free)
        columns = self._outer.factor(*factors[1 - number], free)
        self._b.annotations = x.annotations
        return self._dot(
            x,
            (self._parameter(rows[0]), self._parameter(columns[0])),
            (rows[1], columns[1]),
            batch,
            (rank,),
            is_swapped=number == 1,
        )

    def _dot(
        self,
        x: HloInstruction,
        operands: tuple[HloInstruction, HloInstruction],
        axes: tuple[tuple[int, ...], tuple[int, ...]],
        batch: Sequence[int],
        contracted: Sequence[int],
        *,
        is_swapped: bool,
    ) -> HloInstruction:
        """Return the product of ``operands`` with ``axes`` that has the precision of ``x``."""
        given = x.attrs_as(DotAttrs)
        lhs, rhs = axes
        precision = given.operand_precision[::-1] if is_swapped else given.operand_precision
        attrs = DotAttrs(
            tuple(lhs.index(axis) for axis in contracted),
            tuple(rhs.index(axis) for axis in contracted),
            tuple(lhs.index(axis) for axis in batch),
            tuple(rhs.index(axis) for axis in batch),
            precision,
            given.algorithm,
        )
        return self._b.dot(*operands, attrs, x.array_shape.element_type)

    # ---- score matrices
    def _score(self, x: HloInstruction) -> HloInstruction:
        if x.opcode is Opcode.DOT:
            return self._product(x)
        if self._region.is_view(x):
            return self._copies[x.operand(0)]
        axes = self._region.axes_of[x]
        return self._copy(x, [self._operand(one, axes) for one in x.operands])

    def _operand(self, x: HloInstruction, axes: Axes) -> HloInstruction:
        if x in self._region.axes_of:
            return self._copies[x]
        return self._value(x, axes if x.dims else ())

    def _parameter(self, x: HloInstruction) -> HloInstruction:
        if x not in self.inputs:
            number = len(self.inputs)
            shape = x.array_shape.without_layout()
            self.inputs[x] = self._b.parameter(number, shape, f"param_{number}")
        return self.inputs[x]

    # ---- values that do not depend on score products
    def _value(self, x: HloInstruction, axes: Axes) -> HloInstruction:
        """Return ``x`` along all score dimensions."""
        if (x, axes) not in self._along:
            self._along[x, axes] = self._written(x, axes)
        return self._along[x, axes]

    def _written(self, x: HloInstruction, axes: Axes) -> HloInstruction:
        inner = operand_axes(x, axes)
        if inner is not None:
            return self._value(x.operand(0), inner)
        shape = x.array_shape.without_layout().with_dims(self._region.dims)
        if splat(x) is not None:
            return self._b.full(shape, splat(x))
        if x.opcode is Opcode.IOTA:
            axis = axes[x.attrs_as(IotaAttrs).dimension]
            if axis is None:
                return self._b.full(shape, 0)
            return self._b.iota(shape.element_type, shape.dims, axis)
        if x.dims and computes_scores(x) and self._is_computed_inside(x, axes):
            return self._copy(x, [self._value(one, axes if one.dims else ()) for one in x.operands])
        return self._repeated(x, axes)

    def _repeated(self, x: HloInstruction, axes: Axes) -> HloInstruction:
        """Return a row that a sink computes, or a value from outside, repeated along all other score dimensions."""
        dims = self._region.dims
        if x in self._copies:
            return self._b.broadcast(self._copies[x], range(len(dims) - 1), dims)
        value, given = self._outer.along(x, axes)
        parameter = self._parameter(value)
        if given == tuple(range(len(dims))):
            return parameter
        return self._b.broadcast(parameter, given, dims)

    def _is_computed_inside(self, x: HloInstruction, axes: Axes) -> bool:
        """Return whether ``x`` is computed inside of the fusion and not read from memory.

        A value per row or column is if it needs no array, such as positions. A matrix is if it needs at most one.
        """
        arrays, matrices = set[HloInstruction](), set[HloInstruction]()
        seen: set[tuple[HloInstruction, Axes]] = set()
        work = [(x, axes)]
        while work:
            one, along = source(*work.pop())
            if (one, along) in seen or not one.dims or one.opcode is Opcode.IOTA:
                continue
            seen.add((one, along))
            if len(seen) > MAX_MASK:
                return False
            if splat(one) is not None or one in self._copies:
                continue
            if computes_scores(one):
                work += [(operand, along if operand.dims else ()) for operand in one.operands]
            else:
                arrays.add(one)
                if self._is_matrix(along):
                    matrices.add(one)
        return len(matrices) <= 1 if self._is_matrix(axes) else not arrays

    def _is_matrix(self, axes: Axes) -> bool:
        rank = len(self._region.dims)
        return rank - 2 in axes and rank - 1 in axes


def product_factors(x: HloInstruction, region: ScoreRegion) -> list[tuple[HloInstruction, Axes]]:
    """Return the two factors of a product of rows and columns with their axes; the depth is numbered last."""
    axes, rank = region.axes_of[x], len(region.dims)
    batch = axes[: region.products[x].batch]
    middle = len(batch) + len(factor_dims(x, 0).free)
    free = (axes[len(batch) : middle], axes[middle:])
    found = []
    for number, operand in enumerate(x.operands):
        dims = factor_dims(x, number)
        known = (*batch, rank)
        found.append((operand, product_axes(known, dims.batch, dims.contracting, free[number])))
    return found


def _result_axes(sink: Sink) -> list[int]:
    """Return the axes of the result of ``sink`` inside of a fusion."""
    present = {axis for axis in sink.axes if axis is not None}
    if sink.instruction.opcode is not Opcode.DOT:
        return sorted(present)
    common = [axis for axis in sorted(present) if axis in sink.factor_axes]
    features = common.pop()
    return [*common, *sorted(present.difference(sink.factor_axes)), features]
