"""Planning of loops whose thunks all compute single elements, so that one native call runs many trips."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.program.records.loop import (
    LoopKernel,
    NativeElementwiseKernel,
    OperandElements,
    one_operation,
)
from runtime.program.records.scalar_loop import ScalarLoop, Statement
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView
from runtime.program.thunks import CopyThunk, KernelThunk, Thunk, WhileThunk
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Largest number of thunks of a scalar loop, since its code is compiled for this loop only.
MOST_THUNKS = 64


@dataclass(frozen=True, slots=True)
class _Element:
    """One element in memory: allocation, offset in bytes, and the type with which it is accessed."""

    allocation: int
    offset: int
    kind: PrimitiveType

    @staticmethod
    def of(array: ArrayView, part: StridedView | None = None) -> _Element:
        """Return the element of ``array``, or of ``part``, a view relative to the first element of ``array``."""
        start, seen = array.slice.offset + array.view.offset, array.view
        if part is not None:
            start, seen = start + part.offset, part
        return _Element(array.slice.allocation, start, seen.element_type)

    def as_scalar(self) -> ArrayView:
        """Return the element as an array of rank 0."""
        size = self.kind.byte_size
        return ArrayView(
            BufferSlice(self.allocation, self.offset, size), StridedView(self.kind, (), ())
        )

    @property
    def end(self) -> int:
        return self.offset + self.kind.byte_size

    def touches(self, other: _Element) -> bool:
        """Return whether this element and ``other`` share bytes."""
        return self.allocation == other.allocation and (
            self.offset < other.end and other.offset < self.end
        )


@dataclass(frozen=True, slots=True)
class _Statement:
    """Statement writes = program(reads) on single elements."""

    program: ScalarProgram
    reads: tuple[_Element, ...]
    writes: tuple[_Element, ...]

    @staticmethod
    def reading(element: _Element) -> _Statement:
        """Return a statement that reads ``element`` and writes nothing."""
        return _Statement(ScalarProgram((element.kind,), (), ()), (element,), ())


@dataclass(frozen=True)
class ScalarLoopPlan:
    """Scalar loop and the scalar arrays that are its elements. ``elements[0]`` is the predicate."""

    loop: ScalarLoop
    elements: tuple[ArrayView, ...]


def plan_scalar_loop(loop: WhileThunk) -> ScalarLoopPlan | None:
    """Return the plan of ``loop`` if its thunks all compute single elements, or None.

    There is no plan either if the loop has more than MOST_THUNKS thunks, or if elements overlap in a way that requires
    the order of memory accesses.
    """
    condition, body = loop.condition.thunks, loop.body.thunks
    if len(condition) + len(body) > MOST_THUNKS:
        return None
    steps = [_step(thunk) for thunk in (*condition, *body)]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    asked = _Element.of(loop.predicate)
    tests, changes = known[: len(condition)], known[len(condition) :]
    elements = list(dict.fromkeys([asked, *(p for s in known for p in (*s.reads, *s.writes))]))
    if not _are_registers(elements, [*tests, _Statement.reading(asked), *changes]):
        return None
    numbers = {element: number for number, element in enumerate(elements)}
    statements = tuple(
        Statement(
            step.program,
            tuple(numbers[element] for element in step.reads),
            tuple(numbers[element] for element in step.writes),
        )
        for step in known
    )
    kinds = tuple(element.kind for element in elements)
    count = len(condition)
    scalar_loop = ScalarLoop(kinds, statements[:count], statements[count:], numbers[asked])
    return ScalarLoopPlan(scalar_loop, tuple(element.as_scalar() for element in elements))


def _are_registers(elements: Sequence[_Element], trip: Sequence[_Statement]) -> bool:
    """Return whether each element can be a register: no read needs bytes that another, overlapping element wrote.

    trip: statements of one trip, in order. Two consecutive trips are checked.
    """
    written = {element for step in trip for element in step.writes}
    rivals = {p: [q for q in elements if q != p and q.touches(p)] for p in elements}
    valid = {element for element in elements if not written.intersection(rivals[element])}
    for step in (*trip, *trip):
        if not valid.issuperset(step.reads):
            return False
        for element in step.writes:
            valid.difference_update(rivals[element])
            valid.add(element)
    return True


def _step(thunk: Thunk) -> _Statement | None:
    """Return ``thunk`` as a statement on single elements, or None if it is no such statement or differs by device."""
    if any(use.slice.parts for use in thunk.buffer_uses()):
        return None
    if isinstance(thunk, CopyThunk) and _are_scalars(thunk.source, thunk.target):
        source, target = _Element.of(thunk.source), _Element.of(thunk.target)
        return _Statement(ScalarProgram((source.kind,), (), (0,)), (source,), (target,))
    if not isinstance(thunk, KernelThunk):
        return None
    operands, results, kernel = thunk.operands, thunk.results, thunk.kernel
    if isinstance(kernel, NativeElementwiseKernel) and _are_scalars(*operands, *results):
        reads, writes = tuple(map(_Element.of, operands)), tuple(map(_Element.of, results))
        return _Statement(one_operation(kernel.signature), reads, writes)
    if isinstance(kernel, LoopKernel) and math.prod(kernel.dims) == 1 and not kernel.starts:
        leaves = [leaf for leaf in kernel.leaves if isinstance(leaf, OperandElements)]
        if len(leaves) == len(kernel.leaves):
            return _Statement(
                kernel.program,
                tuple(_Element.of(operands[leaf.operand], leaf.view) for leaf in leaves),
                tuple(map(_Element.of, [results[n] for n in kernel.written], kernel.results)),
            )
    return None


def _are_scalars(*arrays: ArrayView) -> bool:
    return all(array.view.num_elements == 1 for array in arrays)
