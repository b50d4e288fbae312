"""Row fusions: reductions along the same dimensions of one index space, and values computed with them row by row.

A row is the set of elements that the reductions reduce to one number. The kernel iterates over rows or blocks of rows.
It traverses each row in several passes if one reduction depends on another. Softmax reads a row from memory once, and
then from the cache:

    m = reduce max (x)                    pass 0 computes m
    e = exp(x - broadcast m)              pass 1 computes e, which it caches, and s;
    s = reduce add (e)                        r = 1 / s then follows, once for the row
    result = e * broadcast (1 / s)        pass 2 computes e * r
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runtime.fusion.element_graph import ElementGraph, Starts, Wanted, element_graph, post_order
from runtime.fusion.element_operations import array_shape
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.results import Result, matching_result, result_candidates, same_size
from runtime.fusion.row_region import RowRegion, row_region
from runtime.fusion.view_path import AccessMap, access_map, repeated
from runtime.program.records.rows import Reduction, RowFusion, RowInput, RowPass, Source
from runtime.program.strides import StridedView, dense_strides
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.reduction import reduction_kind


@dataclass(frozen=True, slots=True)
class PassGraphs:
    """Graphs of one pass, whose programs are those of the pass's RowPass.

    ``elements`` computes values at all indices, ``inits`` the initial values of the reductions, and ``rows`` the values
    that are computed once per row after the pass.
    """

    elements: ElementGraph
    inits: ElementGraph
    rows: ElementGraph


@dataclass(frozen=True, slots=True)
class RowFusionPlan:
    """Plan of a row fusion, before the layouts of its operands are known. ``graphs`` has one entry per pass.

    ``inputs`` gives the meaning of the graphs' input numbers, and ``starts`` computes the start scalars of dynamic
    slices, once per kernel. ``overwrites`` are pairs (result, input) that may share memory: the last pass writes the
    result at the index at which it reads the input, and no row reads another row of the input.
    """

    fusion: RowFusion
    graphs: tuple[PassGraphs, ...]
    inputs: tuple[RowInput, ...]
    starts: tuple[ElementGraph, ...]
    overwrites: tuple[tuple[int, int], ...]


def has_reductions(roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]) -> bool:
    """Return whether a kernel of ``roots`` computes a reduction."""
    return any(x.opcode is Opcode.REDUCE and x not in inputs for x in post_order(roots, inputs))


def row_fusion(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> RowFusionPlan:
    """Plan one kernel of ``roots``, which must need reductions.

    If caching costly values for later passes makes the plan impossible, these are computed in each pass. Raises
    NoEmitterError, with the reason, if there is no plan.
    """
    region = row_region(roots, inputs)
    keeping = region.worth_keeping()
    try:
        return _Assembly(region, keeping).plan()
    except NoEmitterError:
        if not keeping:
            raise
        return _Assembly(region, []).plan()


class _Assembly:
    """Assembly of a plan. ``keeping`` lists the values that a pass caches for later passes."""

    def __init__(self, region: RowRegion, keeping: Sequence[HloInstruction]) -> None:
        self.region = region
        self.keeping = keeping
        self.starts = Starts()
        self.row_values = region.row_values
        operands = max(region.operands.values(), default=-1) + 1
        self.inputs = [RowInput(Source.OPERAND, n) for n in range(operands)]
        self.reduction_inputs = self.numbered(Source.REDUCTION, region.reduces)
        self.row_inputs = self.numbered(Source.ROW, self.row_values)
        self.cached_inputs = self.numbered(Source.CACHED, keeping)
        self.results: dict[int, Result] = {}
        for number, root in enumerate(region.roots):
            sizes = region.rows if region.is_row_result(root) else region.dims
            candidates = list(result_candidates(root, region.operands))
            self.results[number] = matching_result(candidates, sizes)

    def numbered(
        self, source: Source, instructions: Sequence[HloInstruction]
    ) -> dict[HloInstruction, int]:
        """Number ``instructions`` as further inputs of the graphs, which come from ``source``."""
        first = len(self.inputs)
        self.inputs += [RowInput(source, n) for n in range(len(instructions))]
        return {x: first + n for n, x in enumerate(instructions)}

    def plan(self) -> RowFusionPlan:
        """Return the plan, with the passes in order."""
        region = self.region
        last = max(
            max(region.levels[x] for x in region.reduces) - 1,
            max((region.levels[r] for r in region.roots if not region.is_row_result(r)), default=0),
        )
        passes, graphs = zip(*(self.row_pass(level) for level in range(last + 1)), strict=True)
        starts = self.starts.graphs(region.operands)
        reductions = []
        for x in region.reduces:
            kind = reduction_kind(x.to_apply)
            assert kind is not None, "the region was asked for that"
            reductions.append(Reduction(kind, array_shape(x).element_type))
        fusion = RowFusion(
            region.dims,
            region.axes,
            passes,
            tuple(reductions),
            tuple(array_shape(x).element_type for x in self.row_values),
            tuple(array_shape(x).element_type for x in self.keeping),
            tuple(self.result_view(result) for result in self.results.values()),
        )
        overwrites = tuple(self.overwrites(passes[-1], graphs, starts))
        return RowFusionPlan(fusion, graphs, tuple(self.inputs), starts, overwrites)

    def overwrites(
        self, last: RowPass, graphs: Sequence[PassGraphs], starts: Sequence[ElementGraph]
    ) -> Iterator[tuple[int, int]]:
        """Yield the pairs (result, operand) that may share memory.

        The result must depend on all reductions, so that each row of the operand was read before, and the operand must
        be read at all indices in row-major order only.
        """
        region = self.region
        elsewhere = [graph for each in graphs for graph in (each.inits, each.rows)]
        moved = {leaf.number for graph in (*elsewhere, *starts) for leaf in graph.input_leaves}
        reads = [leaf for each in graphs for leaf in each.elements.input_leaves]
        moved |= {leaf.number for leaf in reads if not all(op.keeps_order for op in leaf.path)}
        steady = [n for n in dict.fromkeys(leaf.number for leaf in reads) if n not in moved]
        shapes = {number: array_shape(x) for x, number in region.operands.items()}
        for n, result in self.results.items():
            root, shape = result.root, array_shape(result.root)
            if n not in last.results or not result.keeps_order:
                continue
            if set(region.reduces) - set(post_order([root], region.operands)):
                continue
            for number in steady:
                if number in shapes and same_size(shapes[number], shape):
                    yield n, number

    def result_view(self, result: Result) -> StridedView:
        """Return the view of a result's memory. Raises NoEmitterError if strides cannot express it."""
        region = self.region
        sizes = region.rows if region.is_row_result(result.root) else region.dims
        written = result.view(sizes)
        if written is None:
            raise NoEmitterError(f"no strides say how {result.root.name} is written")
        return written.view

    def row_pass(self, level: int) -> tuple[RowPass, PassGraphs]:
        """Return pass ``level`` and its graphs."""
        levels, region = self.region.levels, self.region
        reduces = [x for x in region.reduces if levels[x] == level + 1]
        cached = [x for x in self.keeping if levels[x] == level]
        row_values = [x for x in self.row_values if levels[x] == level + 1]
        here = [(n, x) for n, x in enumerate(region.roots) if not region.is_row_result(x)]
        results = [n for n, x in here if levels[x] == level]
        there = [(n, x) for n, x in enumerate(region.roots) if region.is_row_result(x)]
        row_results = [n for n, x in there if max(levels[x], 1) == level + 1]
        elements: list[Wanted] = [(x.operand(0), ()) for x in reduces]
        elements += [(x, ()) for x in cached]
        elements += [self.wanted_result(n, region.dims) for n in results]
        rows = [(x, Result(x, x).path(region.rows)) for x in row_values]
        rows += [self.wanted_result(n, region.rows) for n in row_results]
        inits: list[Wanted] = [(x.operand(1), (repeated(region.rows),)) for x in reduces]
        graphs = PassGraphs(
            self.over_all(elements, level),
            element_graph(inits, region.operands, self.starts),
            self.over_rows(rows, level),
        )
        one = RowPass(
            graphs.elements.program,
            tuple(map(region.reduces.index, reduces)),
            tuple(map(self.keeping.index, cached)),
            tuple(results),
            graphs.inits.program,
            graphs.rows.program,
            tuple(map(self.row_values.index, row_values)),
            tuple(row_results),
        )
        return one, graphs

    def wanted_result(self, number: int, sizes: tuple[int, ...]) -> Wanted:
        """Return result ``number`` as a value over the index space ``sizes``."""
        result = self.results[number]
        return result.base, result.path(sizes)

    def over_all(self, wanted: Sequence[Wanted], level: int) -> ElementGraph:
        """Return the graph of the values that pass ``level`` computes at all indices."""
        levels, region = self.region.levels, self.region
        rows = {x: n for x, n in self.row_inputs.items() if levels[x] <= level}
        cached = {x: n for x, n in self.cached_inputs.items() if levels[x] < level}
        graph = element_graph(wanted, {**region.operands, **rows, **cached}, self.starts)
        steps = dense_strides(region.rows, 1)
        along = iter(steps)
        by_row = tuple(0 if d in region.axes else next(along) for d in range(len(region.dims)))
        self.require_own_rows(graph, rows, by_row, region.dims)
        self.require_own_rows(graph, cached, dense_strides(region.dims, 1), region.dims)
        return graph

    def over_rows(self, wanted: Sequence[Wanted], level: int) -> ElementGraph:
        """Return the graph of the values that are computed once per row after pass ``level``."""
        levels, region = self.region.levels, self.region
        rows = {x: n for x, n in self.row_inputs.items() if levels[x] <= level}
        reductions = {x: n for x, n in self.reduction_inputs.items() if levels[x] <= level + 1}
        inputs = {**region.operands, **rows, **reductions}
        graph = element_graph(wanted, inputs, self.starts)
        steps = dense_strides(region.rows, 1)
        self.require_own_rows(graph, {**rows, **reductions}, steps, region.rows)
        return graph

    def require_own_rows(
        self,
        graph: ElementGraph,
        inputs: Mapping[HloInstruction, int],
        strides: tuple[int, ...],
        sizes: tuple[int, ...],
    ) -> None:
        """Raise NoEmitterError unless ``graph`` reads ``inputs`` with ``strides``, that is, for its own row only."""
        wanted = AccessMap(
            tuple(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True)), 0
        )
        instructions = {number: x for x, number in inputs.items()}
        for leaf in graph.input_leaves:
            if leaf.number in instructions:
                x = instructions[leaf.number]
                if access_map(leaf.path, array_shape(x).dims) != wanted:
                    raise NoEmitterError(f"{x.name} is needed for other rows than its own")
