"""Loop fusions: kernels of one loop that computes all results element by element.

The results have the same index space, except that views may reorder it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from runtime.fusion.element_graph import ElementGraph, Starts, Wanted, element_graph, post_order
from runtime.fusion.element_operations import array_shape
from runtime.fusion.loop_parts import Cutting, LoopPart, PartsRead
from runtime.fusion.piecewise import is_piecewise
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.results import (
    Result,
    ResultView,
    matching_result,
    result_candidates,
    same_size,
    written_map,
)
from runtime.fusion.view_path import access_map
from runtime.program.strides import Range
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LoopPiece:
    """Loop over the indices of ``dims`` that lie in all ``ranges``.

    The loop writes result i of ``graph``'s program through the view ``results[i]`` to the fusion's result
    ``targets[i]``, or to result i if ``targets`` is empty.
    """

    dims: tuple[int, ...]
    graph: ElementGraph
    results: tuple[ResultView, ...]
    ranges: tuple[Range, ...] = ()
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopFusion:
    """Plan of a loop fusion. ``pieces`` cover the results' index space; without concatenations and pads there is one.

    ``starts`` computes the start scalars of dynamic slices, once per kernel. ``overwrites`` are pairs (result, input)
    that may share memory: the loop reads each element of the input only at the index at which it writes the same
    element. ``updates`` are pairs (result, input) whose result has the input's elements wherever the loop writes none.
    """

    pieces: tuple[LoopPiece, ...]
    overwrites: tuple[tuple[int, int], ...]
    starts: tuple[ElementGraph, ...]
    updates: tuple[tuple[int, int], ...] = ()


def loop_fusion(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> LoopFusion:
    """Plan one loop for ``roots``. Raises NoEmitterError, with the reason, if there is none.

    The index space is that of the first root. If strides cannot express the reads there, as for a reshape of a
    transpose, it is that of the value of which the root is a view, and the views are inverted when results are written.
    For a root that updates a block of an input, the loop covers the block.
    """
    candidates, starts = _candidates(roots, inputs)
    try:
        return _Loop.over(candidates[0][0], candidates, inputs, starts).plan()
    except NoEmitterError:
        if len(candidates[0]) == 1:
            raise
        return _Loop.over(candidates[0][-1], candidates, inputs, starts).plan()


def has_small_loop(roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]) -> bool:
    """Return whether ``loop_fusion`` certainly has a plan, without making it. False means that only planning can tell.

    Every instruction must have an emitter of its own.
    """
    try:
        candidates, starts = _candidates(roots, inputs)
        return _Loop.over(candidates[0][0], candidates, inputs, starts).is_small
    except NoEmitterError:
        return False


def _candidates(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> tuple[list[list[Result]], Starts]:
    """Return the ways to write each of ``roots``, and the start scalars of their dynamic-update-slices."""
    starts = Starts()
    return [result_candidates(root, inputs, starts) for root in roots], starts


@dataclass(frozen=True, slots=True)
class _Loop:
    """Loop over an index space before its pieces are known. ``results[i]`` is written through ``views[i]``.

    ``wanted`` are the results' values over the index space, and ``order`` is their post order.
    """

    results: tuple[Result, ...]
    views: tuple[ResultView, ...]
    wanted: tuple[Wanted, ...]
    order: Sequence[HloInstruction]
    inputs: Mapping[HloInstruction, int]
    starts: Starts
    full_part: LoopPart

    @staticmethod
    def over(
        first: Result,
        candidates: Sequence[Sequence[Result]],
        inputs: Mapping[HloInstruction, int],
        starts: Starts,
    ) -> _Loop:
        """Return the loop over the indices of ``first``.

        Raises NoEmitterError if another result cannot be written at these indices.
        """
        dims = array_shape(first.base).dims
        results = (first, *(matching_result(each, dims) for each in candidates[1:]))
        views = []
        for result in results:
            view = result.view(dims)
            if view is None:
                raise NoEmitterError(f"no strides say how {result.root.name} is written")
            views.append(view)
        order = post_order([result.base for result in results], inputs)
        wanted = tuple((result.base, result.path(dims)) for result in results)
        part = LoopPart.full(dims)
        return _Loop(results, tuple(views), wanted, order, inputs, starts.copy(), part)

    def cutting(self) -> Cutting:
        """Return the cuts of the loop. Raises NoEmitterError if the loop cannot be cut into few pieces."""
        cutting = Cutting(self.full_part, self.inputs, self.starts)
        cutting.follow(self.wanted, self.order)
        return cutting

    @property
    def is_small(self) -> bool:
        """Return whether strides express all reads, and all pieces together are within the limits of one kernel.

        Loops with start scalars or updated blocks do not count.
        """
        return self.cutting().is_small and not (
            self.starts.scalars or any(result.updated is not None for result in self.results)
        )

    def plan(self) -> LoopFusion:
        """Return the plan of the loop. Raises NoEmitterError, with the reason, if there is none."""
        cutting = None
        if any(is_piecewise(x) for x in self.order if x not in self.inputs):
            cutting = self.cutting()
        parts = list(self.full_part.pieces())
        groups = _neighbours(parts)
        try:
            pieces = [self.piece(group) for group in groups]
        except NoEmitterError:  # a loop over several parts exceeds the limits of one kernel
            if len(groups) == len(parts):
                raise
            pieces = [self.piece([part]) for part in parts]
        scalars = self.starts.graphs(self.inputs)
        updates = tuple((n, x.updated) for n, x in enumerate(self.results) if x.updated is not None)
        _require_unread(updates, pieces, scalars)
        overwrites = (*updates, *self.overwrites(pieces, cutting, scalars))
        return LoopFusion(tuple(pieces), overwrites, scalars, updates)

    def piece(self, parts: Sequence[LoopPart]) -> LoopPiece:
        """Return one loop that writes the elements of ``parts``, all of equal sizes and, if several, without ranges."""
        every = [(x, (*path, *part.inside)) for part in parts for x, path in self.wanted]
        ranges = parts[0].own_ranges
        return LoopPiece(
            parts[0].sizes,
            element_graph(every, self.inputs, self.starts, ranges, self.order),
            tuple([_cut_view(view, part) for part in parts for view in self.views]),
            ranges,
            tuple(range(len(self.wanted))) * len(parts) if len(parts) > 1 else (),
        )

    def overwrites(
        self, pieces: Sequence[LoopPiece], cutting: Cutting | None, starts: Sequence[ElementGraph]
    ) -> Iterator[tuple[int, int]]:
        """Yield the pairs (result, input) of which the result may be written over the input.

        The loop must read each element of the input only at the index at which it writes the result's element. There
        are no such pairs if a result is written in another order, because the buffer checker takes all loops to run in
        row-major order.
        """
        if not all(result.keeps_order for result in self.results):
            return
        shapes = {number: (x, array_shape(x)) for x, number in self.inputs.items()}
        before = {x.number for each in starts for x in each.input_leaves}
        leaves = [x for piece in pieces for x in piece.graph.input_leaves]
        numbers = dict.fromkeys(leaf.number for leaf in leaves if leaf.number not in before)
        for i, result in enumerate(self.results):
            written = array_shape(result.root)
            for number in numbers:
                x, shape = shapes[number]
                if not same_size(shape, written):
                    continue
                reads = (
                    [
                        PartsRead(leaf.path, {self.full_part: None})
                        for leaf in leaves
                        if leaf.number == number
                    ]
                    if cutting is None
                    else cutting.reads_of(x)
                )
                if all(_is_where_written(read, shape.dims, self.views[i]) for read in reads):
                    yield i, number


def _neighbours(parts: Sequence[LoopPart]) -> list[list[LoopPart]]:
    """Group adjacent parts that differ only along dimensions in which each has one index.

    Such parts read mostly the same elements, for example the components of a cross product or of a rotation, so one
    loop computes a group. The edges of a stencil read different elements and stay apart.
    """
    groups: dict[object, list[LoopPart]] = {}
    for part in parts:
        extents = tuple([None if b - a == 1 else (a, b) for a, b in part.box])
        key = (part.box, part.ranges) if part.ranges else extents
        groups.setdefault(key, []).append(part)
    found: list[list[LoopPart]] = []
    for group in groups.values():
        ways = zip(*(part.box for part in group), strict=True)
        spans = [max(b for _, b in way) - min(a for a, _ in way) for way in ways]
        if math.prod(spans) == len(group) * math.prod(group[0].sizes):
            found.append(group)
        else:
            found += [[part] for part in group]
    return found if len(found) < len(parts) else [[part] for part in parts]


def _cut_view(view: ResultView, part: LoopPart) -> ResultView:
    """Return the part of ``view`` that ``part`` writes."""
    ones = (1,) * len(part.dims)
    return ResultView(view.view.slice(part.begins, part.ends, ones), view.shifts)


def _require_unread(
    updates: Sequence[tuple[int, int]], pieces: Sequence[LoopPiece], starts: Sequence[ElementGraph]
) -> None:
    """Raise NoEmitterError if the loop reads an input of ``updates``, since it may overwrite that input at any time."""
    graphs = [*(piece.graph for piece in pieces), *starts]
    read = {leaf.number for graph in graphs for leaf in graph.input_leaves}
    if any(number in read for _, number in updates):
        raise NoEmitterError("a block is changed of what is read")


def _is_where_written(read: PartsRead, dims: tuple[int, ...], view: ResultView) -> bool:
    """Return whether each element of an input of sizes ``dims`` is read at the index where ``view`` writes it."""
    return access_map(read.path, dims) == written_map(view) or all(
        access_map((*read.path, *part.inside), dims) == written_map(_cut_view(view, part))
        for part in read.pieces()
    )
