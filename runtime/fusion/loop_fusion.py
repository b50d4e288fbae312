"""Loop fusions: all results have the same index space, up to its order, and are computed per element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from runtime.fusion.element_graph import ElementGraph, InputLeaf, Starts, element_graph, post_order
from runtime.fusion.element_operations import array_shape
from runtime.fusion.piecewise import CutError
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.results import (
    Result,
    ResultView,
    matching_result,
    result_candidates,
    written_map,
)
from runtime.fusion.view_path import ViewOp, ViewPath, access_map
from runtime.program.strides import Range
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import SliceAttrs
from spmd.shape import ArrayShape

#: Largest number of pieces; each has its own code.
MAX_PIECES = 16


@dataclass(frozen=True, slots=True)
class LoopPiece:
    """Loop over the indices of ``dims`` that lie in all ``ranges``. Result i of ``graph``'s program is written through
    the view ``results[i]`` to the fusion's result ``targets[i]``; without ``targets`` to result i.
    """

    dims: tuple[int, ...]
    graph: ElementGraph
    results: tuple[ResultView, ...]
    ranges: tuple[Range, ...] = ()
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopFusion:
    """Plan of a loop fusion. ``pieces`` cover the results' index space: one, unless concatenations or pads are read.

    starts: start scalars of dynamic slices, computed once per kernel.
    overwrites: pairs (result, input): each element of the input is only read where the same element is written.
    updates: pairs (result, input): elements of the result that the loop does not write are those of the input.
    """

    pieces: tuple[LoopPiece, ...]
    overwrites: tuple[tuple[int, int], ...]
    starts: tuple[ElementGraph, ...]
    updates: tuple[tuple[int, int], ...] = ()


#: First index and end along each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]


def loop_fusion(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> LoopFusion:
    """Plan one loop for ``roots``. Raises NoEmitterError, with the reason, if there is none.

    The index space is that of the first root. If inputs cannot be read there (a reshape of a transpose), it is that of
    the value that the root shows through views, and these views are applied when results are written. For a root that
    updates a block of an input, it is the block's.
    """
    starts = Starts()
    candidates = [result_candidates(root, inputs, starts) for root in roots]
    try:
        return _over(candidates[0][0], candidates, inputs, starts)
    except NoEmitterError:
        if len(candidates[0]) == 1:
            raise
        return _over(candidates[0][-1], candidates, inputs, starts)


def _over(
    first: Result,
    candidates: Sequence[Sequence[Result]],
    inputs: Mapping[HloInstruction, int],
    starts: Starts,
) -> LoopFusion:
    dims = array_shape(first.base).dims
    results = [first, *(matching_result(each, dims) for each in candidates[1:])]
    starts = starts.copy()
    views = []
    for result in results:
        view = result.view(dims)
        if view is None:
            raise NoEmitterError(f"no strides say how {result.root.name} is written")
        views.append(view)
    full_box = tuple((0, size) for size in dims)
    order = post_order([result.base for result in results], inputs)
    some = _pieces(full_box, (), dims, results, views, inputs, starts, order)
    boxed = tuple(itertools.islice(some, MAX_PIECES + 1))
    if len(boxed) > MAX_PIECES:
        raise NoEmitterError(f"a loop is cut into at most {MAX_PIECES} pieces")
    scalars = starts.graphs(inputs)
    updates = tuple((n, x.updated) for n, x in enumerate(results) if x.updated is not None)
    pieces = tuple(piece for _, piece in boxed)
    _require_unread(updates, pieces, scalars)
    overwrites = (*updates, *_overwrites(pieces, results, inputs, scalars))
    groups = _neighbours(boxed)
    if len(groups) < len(boxed):
        try:
            pieces = tuple(
                _joined(boxes, dims, results, views, inputs, starts, order)
                if len(boxes) > 1
                else piece
                for boxes, piece in groups
            )
        except NoEmitterError:  # one loop would compute or read too much, as its parts do not
            pass
    return LoopFusion(pieces, overwrites, scalars, updates)


def _pieces(
    box: Box,
    ranges: tuple[Range, ...],
    dims: tuple[int, ...],
    results: Sequence[Result],
    views: Sequence[ResultView],
    inputs: Mapping[HloInstruction, int],
    starts: Starts,
    order: Sequence[HloInstruction],
) -> Iterator[tuple[Box, LoopPiece]]:
    """Yield loops over ``box`` of the index space ``dims``, which is cut at the edges of concatenations and pads, with
    the parts of ``box`` that they are over.

    ranges: of indices of the entire space. order: post order of what the results need.
    """
    wanted, sizes = _wanted(box, dims, results)
    begins = tuple(a for a, _ in box)
    here = tuple(_moved(each, begins, -1) for each in ranges)
    if any(each.first >= each.end for each in here):
        return
    try:
        graph = element_graph(wanted, inputs, starts, here, order)
    except CutError as cut:
        for smaller, narrower in _halves(cut, box, ranges):
            yield from _pieces(smaller, narrower, dims, results, views, inputs, starts, order)
        return
    yield box, LoopPiece(sizes, graph, _cut_views(box, views), here)


def _wanted(
    box: Box, dims: tuple[int, ...], results: Sequence[Result]
) -> tuple[list[tuple[HloInstruction, ViewPath]], tuple[int, ...]]:
    """Return what the results are in ``box`` of the index space, and the sizes of the box."""
    sizes = tuple(b - a for a, b in box)
    inside: ViewPath = ()
    if sizes != dims:
        begins, ends = tuple(a for a, _ in box), tuple(b for _, b in box)
        inside = (ViewOp(Opcode.SLICE, sizes, SliceAttrs(begins, ends, (1,) * len(dims))),)
    return [(result.base, (*result.path(dims), *inside)) for result in results], sizes


def _cut_views(box: Box, views: Sequence[ResultView]) -> tuple[ResultView, ...]:
    begins, ends = tuple(a for a, _ in box), tuple(b for _, b in box)
    ones = (1,) * len(box)
    return tuple(ResultView(each.view.slice(begins, ends, ones), each.shifts) for each in views)


def _neighbours(boxed: Sequence[tuple[Box, LoopPiece]]) -> list[tuple[list[Box], LoopPiece]]:
    """Group pieces over equal boxes side by side, of one index along the dimensions in which they differ.

    They read much of the same, as the components of a cross product or of a rotation do. The edges of a stencil do not.
    """
    groups: dict[object, list[tuple[Box, LoopPiece]]] = {}
    for box, piece in boxed:
        extents = tuple(None if b - a == 1 else (a, b) for a, b in box)
        key = (box, piece.ranges) if piece.ranges else extents
        groups.setdefault(key, []).append((box, piece))
    found: list[tuple[list[Box], LoopPiece]] = []
    for group in groups.values():
        boxes = [box for box, _ in group]
        ways = list(zip(*boxes, strict=True))
        spans = [max(b for _, b in way) - min(a for a, _ in way) for way in ways]
        if math.prod(spans) == len(boxes) * math.prod(group[0][1].dims):
            found.append((boxes, group[0][1]))
        else:
            found += [([box], piece) for box, piece in group]
    return found


def _joined(
    boxes: Sequence[Box],
    dims: tuple[int, ...],
    results: Sequence[Result],
    views: Sequence[ResultView],
    inputs: Mapping[HloInstruction, int],
    starts: Starts,
    order: Sequence[HloInstruction],
) -> LoopPiece:
    """Return one loop that writes the results' elements of all ``boxes``, which have equal sizes."""
    wanted = [_wanted(box, dims, results) for box in boxes]
    every = [each for some, _ in wanted for each in some]
    return LoopPiece(
        wanted[0][1],
        element_graph(every, inputs, starts, (), order),
        tuple(view for box in boxes for view in _cut_views(box, views)),
        targets=tuple(range(len(results))) * len(boxes),
    )


def _halves(
    cut: CutError, box: Box, ranges: tuple[Range, ...]
) -> Iterator[tuple[Box, tuple[Range, ...]]]:
    """Yield both sides of the cut, which is relative to the box's begin."""
    begins = tuple(a for a, _ in box)
    if cut.within is not None:
        others = tuple(each for each in ranges if not each.is_of(cut.within))
        for first, end in ((cut.within.first, cut.at), (cut.at, cut.within.end)):
            narrower = replace(cut.within, first=first, end=end)
            yield box, (*others, _moved(narrower, begins, 1))
        return
    d = cut.dimension
    assert d is not None, "a cut across no dimension is one of a range"
    at = begins[d] + cut.at
    for part in ((begins[d], at), (at, box[d][1])):
        yield (*box[:d], part, *box[d + 1 :]), ranges


def _moved(each: Range, begins: Sequence[int], sign: int) -> Range:
    """Shift a range to indices that begin ``begins`` earlier (1), or later (-1)."""
    way = 0 if each.dimension is None else sign * begins[each.dimension]
    return replace(each, first=each.first + way, end=each.end + way)


def _require_unread(
    updates: Sequence[tuple[int, int]], pieces: Sequence[LoopPiece], starts: Sequence[ElementGraph]
) -> None:
    """Require that updated inputs are not read, since the kernel may overwrite them at once."""
    graphs = [piece.graph for piece in pieces]
    leaves = [leaf for graph in (*graphs, *starts) for leaf in graph.leaves]
    read = {leaf.number for leaf in leaves if isinstance(leaf, InputLeaf)}
    if any(number in read for _, number in updates):
        raise NoEmitterError("a block is changed of what is read")


def _overwrites(
    pieces: Sequence[LoopPiece],
    results: Sequence[Result],
    inputs: Mapping[HloInstruction, int],
    starts: Sequence[ElementGraph],
) -> Iterator[tuple[int, int]]:
    """Yield pairs (result, input): each element of the input is only read where that of the result is written.

    There are none if a result is written in another order: to the buffer checker, all loops run in row-major order.
    """
    if not all(result.keeps_order for result in results):
        return
    shapes: dict[int, ArrayShape] = {
        number: array_shape(instruction) for instruction, number in inputs.items()
    }
    before = {leaf.number for each in starts for leaf in each.leaves if isinstance(leaf, InputLeaf)}
    reads: dict[int, list[tuple[InputLeaf, LoopPiece]]] = {}
    for piece in pieces:
        for leaf in piece.graph.leaves:
            if isinstance(leaf, InputLeaf) and leaf.number not in before:
                reads.setdefault(leaf.number, []).append((leaf, piece))
    for i, result in enumerate(results):
        for number, leaves in reads.items():
            if (
                shapes[number].byte_size == array_shape(result.root).byte_size
                and shapes[number].num_elements == array_shape(result.root).num_elements
                and all(
                    access_map(leaf.path, shapes[number].dims) == written_map(piece.results[i])
                    for leaf, piece in leaves
                )
            ):
                yield i, number
