"""Loop fusions: every result has the same index space, up to its order, and is computed there element by element."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runtime.fusion.element_graph import (
    ElementGraph,
    InputLeaf,
    Starts,
    array_shape,
    element_graph,
)
from runtime.fusion.piecewise import CutError
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import ViewOp, ViewPath, backwards, is_bijective, view_op
from runtime.strides import StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import SliceAttrs
from spmd.shape import ArrayShape

#: Each is code of its own.
MAX_PIECES = 8


@dataclass(frozen=True, slots=True)
class LoopPiece:
    """For all indices of ``dims``: result i, seen as ``results[i]``, gets result i of ``graph``'s program."""

    dims: tuple[int, ...]
    graph: ElementGraph
    results: tuple[StridedView, ...]


@dataclass(frozen=True, slots=True)
class LoopFusion:
    """``pieces`` make up the index space of the results: one, unless concatenations or pads are read.

    starts: scalars where dynamic slices start, once for the kernel.
    overwrites: pairs (result, input): every element of the input is read where the result's is written, nowhere else.
    """

    pieces: tuple[LoopPiece, ...]
    overwrites: tuple[tuple[int, int], ...]
    starts: tuple[ElementGraph, ...]


#: From and to which index along each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A root as views of ``base``: ``peeled``, the nearest to the root first, are undone when it is written."""

    root: HloInstruction
    base: HloInstruction
    peeled: tuple[tuple[ViewOp, tuple[int, ...]], ...] = ()

    def view(self, dims: tuple[int, ...]) -> StridedView | None:
        view: StridedView | None = StridedView.dense(array_shape(self.root))
        for op, operand_dims in self.peeled:
            view = None if view is None else backwards(op, view, operand_dims)
        return view if view is None or view.dims == dims else view.reshape(dims)

    def path(self, dims: tuple[int, ...]) -> ViewPath:
        same = array_shape(self.base).dims == dims
        return () if same else (ViewOp(Opcode.RESHAPE, dims),)

    @property
    def keeps_order(self) -> bool:
        return all(op.keeps_order for op, _ in self.peeled)


def loop_fusion(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> LoopFusion:
    """One loop for ``roots``; NoEmitterError says why there is none.

    The index space is that of the first root; or, if inputs cannot be read there (a reshape of a transpose), the one
    before the views that the root is of another value, which are then how results are written.
    """
    forms = [list(result_forms(root, inputs)) for root in roots]
    first = forms[0]
    try:
        return _over(first[0], forms, inputs)
    except NoEmitterError:
        if len(first) == 1:
            raise
        return _over(first[-1], forms, inputs)


def result_forms(root: HloInstruction, inputs: Mapping[HloInstruction, int]) -> list[Result]:
    """The root itself, then as views of its operand, and so on."""
    result = Result(root, root)
    forms = [result]
    while result.base not in inputs:
        op = view_op(result.base)
        if op is None or not is_bijective(op):
            break
        operand = result.base.operand(0)
        peeled = (*result.peeled, (op, array_shape(operand).dims))
        result = Result(root, operand, peeled)
        forms.append(result)
    return forms


def _over(
    first: Result, forms: Sequence[Sequence[Result]], inputs: Mapping[HloInstruction, int]
) -> LoopFusion:
    dims = array_shape(first.base).dims
    results = [first, *(matching_result(each, dims) for each in forms[1:])]
    starts = Starts()
    views = []
    for result in results:
        view = result.view(dims)
        if view is None:
            raise NoEmitterError(f"no strides say how {result.root.name} is written")
        views.append(view)
    whole = tuple((0, size) for size in dims)
    pieces = tuple(_pieces(whole, dims, results, views, inputs, starts))
    if len(pieces) > MAX_PIECES:
        raise NoEmitterError(f"a loop is cut into at most {MAX_PIECES} pieces")
    scalars = starts.graphs(inputs)
    return LoopFusion(pieces, _overwrites(pieces, results, inputs, scalars), scalars)


def _pieces(
    box: Box,
    dims: tuple[int, ...],
    results: Sequence[Result],
    views: Sequence[StridedView],
    inputs: Mapping[HloInstruction, int],
    starts: Starts,
) -> Iterator[LoopPiece]:
    """Loops over ``box`` of the index space ``dims``, which is cut where concatenations and pads have edges."""
    begins, ends = tuple(a for a, _ in box), tuple(b for _, b in box)
    ones = (1,) * len(dims)
    sizes = tuple(b - a for a, b in box)
    inside: ViewPath = ()
    if sizes != dims:
        inside = (ViewOp(Opcode.SLICE, sizes, SliceAttrs(begins, ends, ones)),)
    wanted = [(result.base, (*result.path(dims), *inside)) for result in results]
    try:
        graph = element_graph(wanted, inputs, starts)
    except CutError as cut:
        d, at = cut.dimension, begins[cut.dimension] + cut.at
        for part in ((begins[d], at), (at, ends[d])):
            smaller = (*box[:d], part, *box[d + 1 :])
            yield from _pieces(smaller, dims, results, views, inputs, starts)
        return
    yield LoopPiece(sizes, graph, tuple(view.slice(begins, ends, ones) for view in views))


def matching_result(forms: Sequence[Result], dims: tuple[int, ...]) -> Result:
    for form in forms:
        if array_shape(form.base).dims == dims:
            return form
    shape = array_shape(forms[0].root)
    if shape.num_elements != math.prod(dims):
        raise NoEmitterError(f"{forms[0].root.name} has other indices than the first result")
    return forms[0]


def _overwrites(
    pieces: Sequence[LoopPiece],
    results: Sequence[Result],
    inputs: Mapping[HloInstruction, int],
    starts: Sequence[ElementGraph],
) -> tuple[tuple[int, int], ...]:
    """Where nothing between an input and the results changes the order of elements."""
    if not all(result.keeps_order for result in results):
        return ()
    shapes: dict[int, ArrayShape] = {
        number: array_shape(instruction) for instruction, number in inputs.items()
    }
    leaves = [leaf for piece in pieces for leaf in piece.graph.leaves]
    reads = [leaf for leaf in leaves if isinstance(leaf, InputLeaf)]
    moved = {leaf.number for leaf in reads if not all(op.keeps_order for op in leaf.path)}
    scalars = [leaf for each in starts for leaf in each.leaves]
    moved |= {leaf.number for leaf in scalars if isinstance(leaf, InputLeaf)}
    steady = [n for n in dict.fromkeys(leaf.number for leaf in reads) if n not in moved]
    return tuple(
        (i, number)
        for i, result in enumerate(results)
        for number in steady
        if shapes[number].byte_size == array_shape(result.root).byte_size
        and shapes[number].num_elements == array_shape(result.root).num_elements
    )
