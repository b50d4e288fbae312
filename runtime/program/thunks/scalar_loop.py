"""Loops of which every thunk computes single elements: one native call for many trips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.program.records.loop import LoopKernel, OperandElements
from runtime.program.records.native_elementwise import NativeElementwiseKernel, one_operation
from runtime.program.records.scalar_loop import ScalarLoop, Statement
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView
from runtime.program.thunks.copy import CopyThunk
from runtime.program.thunks.kernel import KernelThunk
from runtime.program.thunks.thunk import Thunk
from spmd.shape import PrimitiveType

#: Thunks of a loop at most: its code is compiled for it alone.
MOST_THUNKS = 64


@dataclass(frozen=True, slots=True)
class _Place:
    """One element: where it lies, and as what it is read or written."""

    allocation: int
    offset: int
    kind: PrimitiveType

    @staticmethod
    def of(array: ArrayView, part: StridedView | None = None) -> _Place:
        """part: of the array, as it is seen from its first element."""
        start, seen = array.slice.offset + array.view.offset, array.view
        if part is not None:
            start, seen = start + part.offset, part
        return _Place(array.slice.allocation, start, seen.element_type)

    def as_scalar(self) -> ArrayView:
        size = self.kind.byte_size
        return ArrayView(
            BufferSlice(self.allocation, self.offset, size), StridedView(self.kind, (), ())
        )

    @property
    def end(self) -> int:
        return self.offset + self.kind.byte_size

    def touches(self, other: _Place) -> bool:
        """Whether the two share bytes."""
        return self.allocation == other.allocation and (
            self.offset < other.end and other.offset < self.end
        )


@dataclass(frozen=True, slots=True)
class _Step:
    program: ScalarProgram
    reads: tuple[_Place, ...]
    writes: tuple[_Place, ...]

    @staticmethod
    def reading(place: _Place) -> _Step:
        """Return a step that reads ``place`` and computes nothing."""
        return _Step(ScalarProgram((place.kind,), (), ()), (place,), ())


@dataclass(frozen=True)
class ScalarLoopPlan:
    """``loop`` on the single elements ``places``, the first of which is the predicate."""

    loop: ScalarLoop
    places: tuple[ArrayView, ...]


def plan_scalar_loop(
    condition: Sequence[Thunk], body: Sequence[Thunk], predicate: ArrayView
) -> ScalarLoopPlan | None:
    """None where a thunk does anything else than compute single elements."""
    if len(condition) + len(body) > MOST_THUNKS:
        return None
    steps = [_step(thunk) for thunk in (*condition, *body)]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    asked = _Place.of(predicate)
    tests, changes = known[: len(condition)], known[len(condition) :]
    places = list(dict.fromkeys([asked, *(p for s in known for p in (*s.reads, *s.writes))]))
    if not _are_registers(places, [*tests, _Step.reading(asked), *changes]):
        return None
    numbers = {place: number for number, place in enumerate(places)}
    statements = tuple(
        Statement(
            step.program,
            tuple(numbers[place] for place in step.reads),
            tuple(numbers[place] for place in step.writes),
        )
        for step in known
    )
    kinds = tuple(place.kind for place in places)
    count = len(condition)
    loop = ScalarLoop(kinds, statements[:count], statements[count:], numbers[asked])
    return ScalarLoopPlan(loop, tuple(place.as_scalar() for place in places))


def _are_registers(places: Sequence[_Place], trip: Sequence[_Step]) -> bool:
    """Whether each place's value is read as it was last written, though others may take its bytes in between."""
    written = {place for step in trip for place in step.writes}
    rivals = {p: [q for q in places if q != p and q.touches(p)] for p in places}
    valid = {place for place in places if not written.intersection(rivals[place])}
    for step in (*trip, *trip):
        if not valid.issuperset(step.reads):
            return False
        for place in step.writes:
            valid.difference_update(rivals[place])
            valid.add(place)
    return True


def _step(thunk: Thunk) -> _Step | None:
    """Return ``thunk`` as a program of single elements; None if it is more than that, or differs by device."""
    if any(use.slice.parts for use in thunk.buffer_uses()):
        return None
    if isinstance(thunk, CopyThunk) and _are_scalars(thunk.source, thunk.target):
        source, target = _Place.of(thunk.source), _Place.of(thunk.target)
        return _Step(ScalarProgram((source.kind,), (), (0,)), (source,), (target,))
    if not isinstance(thunk, KernelThunk):
        return None
    operands, results, kernel = thunk.operands, thunk.results, thunk.kernel
    if isinstance(kernel, NativeElementwiseKernel) and _are_scalars(*operands, *results):
        reads, writes = tuple(map(_Place.of, operands)), tuple(map(_Place.of, results))
        return _Step(one_operation(kernel.signature), reads, writes)
    if isinstance(kernel, LoopKernel) and math.prod(kernel.dims) == 1 and not kernel.starts:
        leaves = [leaf for leaf in kernel.leaves if isinstance(leaf, OperandElements)]
        if len(leaves) == len(kernel.leaves):
            return _Step(
                kernel.program,
                tuple(_Place.of(operands[leaf.operand], leaf.view) for leaf in leaves),
                tuple(map(_Place.of, results, kernel.results)),
            )
    return None


def _are_scalars(*arrays: ArrayView) -> bool:
    return all(array.view.num_elements == 1 for array in arrays)
