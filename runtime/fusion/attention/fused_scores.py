"""Writer of the computation of an attention fusion: sinks of score matrices, and what they are computed from.

All values inside have the score dimensions, except rows that sinks compute. Outside values are parameters that are
broadcast along these dimensions. Masks are computed inside from iotas, scalars and values per row or column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runtime.fusion.attention.score_axes import Axes, all_axes, source
from runtime.fusion.attention.scores import ScoreRegion, computes_scores
from runtime.fusion.attention.sinks import Sink
from runtime.fusion.element_operations import splat_constant
from runtime.fusion.refusal import NoEmitterError
from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.attrs import ConstantAttrs, IotaAttrs

#: Largest number of instructions that a mask is computed from inside of a fusion.
MAX_MASK = 48


class OuterValues:
    """Values outside of fusions, without dimensions of size 1 and with the others in the order of the score dimensions.

    The fusions of a region share them.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._known: dict[tuple[HloInstruction, Axes], HloInstruction] = {}

    def along(self, x: HloInstruction, axes: Axes) -> tuple[HloInstruction, tuple[int, ...]]:
        """Return ``x`` with its dimensions in the order of its axes, and these."""
        order = sorted((axis, d) for d, axis in enumerate(axes) if axis is not None)
        given = tuple(axis for axis, _ in order)
        if given == axes:
            return x, given
        if (x, axes) not in self._known:
            b = self._builder
            long = b.reshape_to(
                x, [n for n, axis in zip(x.dims, axes, strict=True) if axis is not None]
            )
            present = [d for d, axis in enumerate(axes) if axis is not None]
            self._known[x, axes] = b.transpose_by(long, [present.index(d) for _, d in order])
        return self._known[x, axes], given


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
    ) -> list[HloInstruction]:
        """Write ``sinks`` and the score matrices that they need, in the order of ``position``. Returns the results."""
        sink_of = {sink.instruction: sink for sink in sinks}
        needed = dict.fromkeys(sink.scores for sink in sink_of.values())
        work = list(needed)
        while work:
            x = work.pop()
            operands = () if x.opcode is Opcode.DOT else x.operands
            new = [one for one in operands if one in self._region.values and one not in needed]
            needed.update(dict.fromkeys(new))
            work += new
        for x in sorted((*needed, *sink_of), key=position.__getitem__):
            sink = sink_of.get(x)
            self._copies[x] = self._score(x) if sink is None else self._sink(sink)
        return [self._copies[x] for x in sink_of]

    def _copy(self, x: HloInstruction, operands: Iterable[HloInstruction]) -> HloInstruction:
        copy = x.clone(x.array_shape.without_layout(), operands)
        copy.sharding = None
        return self.computation.add(copy)

    def _sink(self, sink: Sink) -> HloInstruction:
        x = sink.instruction
        operands = [self._copies[sink.scores]]
        if x.opcode is Opcode.DOT:
            operands.insert(1 - sink.number, self._parameter(sink.factor))
        else:
            operands.append(self._copy(x.operand(1), ()))
        return self._copy(x, operands)

    def _score(self, x: HloInstruction) -> HloInstruction:
        if x.opcode is Opcode.DOT:
            return self._copy(x, map(self._parameter, x.operands))
        return self._copy(x, [self._operand(one) for one in x.operands])

    def _operand(self, x: HloInstruction) -> HloInstruction:
        return self._copies[x] if x in self._region.values else self._value(x, all_axes(x))

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
        inner, inner_axes = source(x, axes)
        if inner is not x:
            return self._value(inner, inner_axes)
        shape = x.array_shape.without_layout().with_dims(self._region.dims)
        if _splat(x) is not None:
            return self._b.full(shape, _splat(x))
        if x.opcode is Opcode.IOTA:
            axis = axes[x.attrs_as(IotaAttrs).dimension]
            if axis is None:
                return self._b.full(shape, 0)
            return self._b.iota(shape.element_type, shape.dims, axis)
        if x.dims and computes_scores(x) and self._is_computed_inside(x, axes):
            operands = [self._value(one, axes if one.dims else ()) for one in x.operands]
            copy = x.clone(shape, operands)
            copy.sharding = None
            return self.computation.add(copy)
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
            if _splat(one) is not None or one in self._copies:
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


def _splat(x: HloInstruction) -> object | None:
    """Return the value of all elements of a constant; None if they differ, and for other instructions."""
    if x.opcode is not Opcode.CONSTANT:
        return None
    try:
        splat_constant(x)
    except NoEmitterError:
        return None
    literal = x.attrs_as(ConstantAttrs).literal
    return None if literal is None else next(literal.value().flat)
