"""Dimensions of a program's arrays that belong together: one has another size only if all of them have.

An elementwise operation joins each dimension of its operands with that of its result, a product the contracted
dimensions of its operands, a loop those of its state before, in and after it. A gather, a slice of some elements and
its update end a class: the sizes on both sides differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from spmd.analysis.common_factors import common_factors
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import CollectiveAttrs, DimensionsAttrs, DotAttrs, PadAttrs, WindowAttrs
from spmd.ops.dot import free_dims
from spmd.ops.elementwise_ops import ELEMENTWISE
from spmd.passes.while_state import element_index
from spmd.shape import ArrayShape, ShapeIndex, TupleShape, leaves

#: Dimension ``int`` of the array at an index of an instruction's result.
Dimension: TypeAlias = tuple[HloInstruction, ShapeIndex, int]
_Pairs: TypeAlias = Iterator[tuple[Dimension, Dimension]]


class DimensionClasses:
    """The classes of the dimensions of ``module``, which must not be changed while the object is in use.

    unknown: instructions whose operands and results are not joined, because their operation has no rule.
    """

    def __init__(self, module: HloModule) -> None:
        self._parents: dict[Dimension, Dimension] = {}
        self.unknown: list[HloInstruction] = []
        for x in module.all_instructions():
            rule = _RULES.get(x.opcode)
            if rule is None:
                self.unknown.append(x)
                continue
            for one, other in rule(x):
                self._parents[self.representative(one)] = self.representative(other)

    def representative(self, dimension: Dimension) -> Dimension:
        """Return the dimension that stands for the class of ``dimension``."""
        path = []
        while (parent := self._parents.get(dimension, dimension)) != dimension:
            path.append(dimension)
            dimension = parent
        for one in path:
            self._parents[one] = dimension
        return dimension


def _array(x: HloInstruction, dimension: int) -> Dimension:
    return x, (), dimension


def _none(x: HloInstruction) -> _Pairs:
    """Yield nothing: the sizes of the operands say nothing of those of the result."""
    return iter(())


def _equal(x: HloInstruction, index: ShapeIndex, y: HloInstruction, start: ShapeIndex) -> _Pairs:
    """Yield each dimension of the part of ``x`` at ``index`` and the same of the part of ``y`` at ``start``."""
    part = x.shape
    for i in index:
        assert isinstance(part, TupleShape)
        part = part.elements[i]
    for below, leaf in leaves(part):
        if isinstance(leaf, ArrayShape):
            for d in range(leaf.rank):
                yield (x, (*index, *below), d), (y, (*start, *below), d)


def _elementwise(x: HloInstruction) -> _Pairs:
    for operand in x.operands:
        if operand.dims == x.dims:
            yield from _equal(x, (), operand, ())


def _broadcast(x: HloInstruction) -> _Pairs:
    for d, result in enumerate(x.attrs_as(DimensionsAttrs).dimensions):
        yield _array(x.operand(0), d), _array(x, result)


def _transpose(x: HloInstruction) -> _Pairs:
    for result, d in enumerate(x.attrs_as(DimensionsAttrs).dimensions):
        yield _array(x.operand(0), d), _array(x, result)


def _reshape(x: HloInstruction) -> _Pairs:
    """Join the major dimensions of each two runs of dimensions with equally many elements."""
    if 0 not in x.dims:
        for before, after in common_factors(x.operand(0).dims, x.dims):
            yield _array(x.operand(0), before[0]), _array(x, after[0])


def _reduce(x: HloInstruction) -> _Pairs:
    reduced = x.attrs_as(DimensionsAttrs).dimensions
    arrays = x.operands[: x.num_operands // 2]
    kept = free_dims(len(arrays[0].dims), reduced)
    for i, array in enumerate(arrays):
        index = (i,) if isinstance(x.shape, TupleShape) else ()
        yield from _equal(array, (), arrays[0], ())
        for result, d in enumerate(kept):
            yield _array(array, d), (x, index, result)


def _dot(x: HloInstruction) -> _Pairs:
    attrs = x.attrs_as(DotAttrs)
    lhs, rhs = x.operands
    for d, other in zip(attrs.lhs_contracting, attrs.rhs_contracting, strict=True):
        yield _array(lhs, d), _array(rhs, other)
    lhs_free = free_dims(len(lhs.dims), attrs.lhs_batch, attrs.lhs_contracting)
    rhs_free = free_dims(len(rhs.dims), attrs.rhs_batch, attrs.rhs_contracting)
    for d, other in zip(attrs.lhs_batch, attrs.rhs_batch, strict=True):
        yield _array(lhs, d), _array(rhs, other)
    for result, d in enumerate((*attrs.lhs_batch, *lhs_free)):
        yield _array(lhs, d), _array(x, result)
    for result, d in enumerate(rhs_free, len(attrs.lhs_batch) + len(lhs_free)):
        yield _array(rhs, d), _array(x, result)


def _same_sizes(x: HloInstruction) -> _Pairs:
    """Yield the dimensions of which ``x`` takes all elements."""
    operand = x.operand(0)
    for d, size in enumerate(operand.dims):
        if x.dims[d] == size:
            yield _array(operand, d), _array(x, d)


def _update(x: HloInstruction) -> _Pairs:
    array, update = x.operand(0), x.operand(1)
    yield from _equal(x, (), array, ())
    for d, size in enumerate(array.dims):
        if update.dims[d] == size:
            yield _array(array, d), _array(update, d)


def _pad(x: HloInstruction) -> _Pairs:
    attrs = x.attrs_as(PadAttrs)
    for d, added in enumerate(zip(attrs.low, attrs.high, attrs.interior, strict=True)):
        if not any(added):
            yield _array(x.operand(0), d), _array(x, d)


def _concatenate(x: HloInstruction) -> _Pairs:
    (along,) = x.attrs_as(DimensionsAttrs).dimensions
    for operand in x.operands:
        for d in range(len(x.dims)):
            if d != along:
                yield _array(operand, d), _array(x, d)


def _window(x: HloInstruction) -> _Pairs:
    for d, one in enumerate(x.attrs_as(WindowAttrs).window.dims):
        if one.size == 1 and x.dims[d] == x.operand(0).dims[d]:
            yield _array(x.operand(0), d), _array(x, d)


def _all_reduce(x: HloInstruction) -> _Pairs:
    for i, operand in enumerate(x.operands):
        yield from _equal(operand, (), x, (i,) if isinstance(x.shape, TupleShape) else ())


def _resized(x: HloInstruction) -> _Pairs:
    along = x.attrs_as(CollectiveAttrs).dimension
    for d in range(len(x.operand(0).dims)):
        if d != along and x.num_operands == 1:
            yield _array(x.operand(0), d), _array(x, d)


def _tuple(x: HloInstruction) -> _Pairs:
    for i, operand in enumerate(x.operands):
        yield from _equal(operand, (), x, (i,))


def _element(x: HloInstruction) -> _Pairs:
    yield from _equal(x, (), x.operand(0), (element_index(x),))


def _whole(x: HloInstruction) -> _Pairs:
    yield from _equal(x, (), x.operand(0), ())


def _while(x: HloInstruction) -> _Pairs:
    body = x.while_body
    for other in (x.operand(0), body.parameters[0], body.root, x.while_condition.parameters[0]):
        yield from _equal(x, (), other, ())


_RULES: dict[Opcode, Callable[[HloInstruction], _Pairs]] = {
    **dict.fromkeys((*ELEMENTWISE, Opcode.COPY), _elementwise),
    **dict.fromkeys((Opcode.PARAMETER, Opcode.CONSTANT, Opcode.IOTA, Opcode.PARTITION_ID), _none),
    Opcode.BROADCAST: _broadcast,
    Opcode.TRANSPOSE: _transpose,
    Opcode.RESHAPE: _reshape,
    Opcode.REDUCE: _reduce,
    Opcode.DOT: _dot,
    Opcode.SLICE: _same_sizes,
    Opcode.DYNAMIC_SLICE: _same_sizes,
    Opcode.DYNAMIC_UPDATE_SLICE: _update,
    Opcode.PAD: _pad,
    Opcode.CONCATENATE: _concatenate,
    Opcode.REDUCE_WINDOW: _window,
    Opcode.ALL_REDUCE: _all_reduce,
    Opcode.ALL_GATHER: _resized,
    Opcode.REDUCE_SCATTER: _resized,
    Opcode.TUPLE: _tuple,
    Opcode.GET_TUPLE_ELEMENT: _element,
    Opcode.OPT_BARRIER: _whole,
    Opcode.WHILE: _while,
}
