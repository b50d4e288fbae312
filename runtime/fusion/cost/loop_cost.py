"""Cost of a loop over the elements of a kernel's results: work and traffic, from index maps.

For each element it computes what the results need, down to the kernel's inputs. An element that several instructions
need with the same index map is computed once; with two maps, twice. A value that does not change along the innermost
loop is computed once per row. Each touched byte of an input is fetched once; bytes that are touched again come from the
memory level that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from runtime.fusion.cost.cost_model import STRIDED, CostModel, KernelCost
from runtime.fusion.element_graph import post_order
from runtime.fusion.index_maps import Index, IndexMap, identity, operand_accesses, reshaped
from runtime.fusion.loop_edges import Edges, add_edges, piece_count
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.opdef import OPS


@dataclass(eq=False, slots=True)
class _ElementUse:
    """Use of an instruction's elements. ``map``: the index map, which depends on ``variables``.

    times: number of evaluations; inner: the loop variable that moves fastest through the elements seen there.
    """

    map: IndexMap
    inner: int | None
    variables: frozenset[int]
    times: float


def loop_cost(
    roots: Sequence[HloInstruction], inputs: Collection[HloInstruction], cost_model: CostModel
) -> KernelCost:
    """Return the cost of a kernel that computes ``roots``, all of as many elements, from ``inputs``."""
    traversal = _Traversal(cost_model, written_block(roots[0]).dims)
    traversal.run(roots, dict.fromkeys(inputs, 0))
    return traversal.cost(roots)


def written_block(root: HloInstruction) -> HloInstruction:
    """Return what a loop computes and writes for ``root``: itself, or the block that it updates in a larger array."""
    update = root
    while update.opcode in (Opcode.RESHAPE, Opcode.BITCAST):
        update = update.operand(0)
    return update.operand(1) if update.opcode is Opcode.DYNAMIC_UPDATE_SLICE else root


@dataclass
class _Traversal:
    """Traversal of a kernel from its results to its inputs, which counts work and reads."""

    cost_model: CostModel
    sizes: tuple[int, ...]
    demands: dict[HloInstruction, dict[_ElementUse, float]] = field(default_factory=dict)
    reads: dict[HloInstruction, dict[_ElementUse, float]] = field(default_factory=dict)
    uses: dict[tuple[IndexMap, int | None], _ElementUse] = field(default_factory=dict)
    compute: float = 0.0
    evaluations: float = 0.0
    code: int = 0
    counting: int = 0
    edges: Edges = field(default_factory=dict)

    def run(self, roots: Sequence[HloInstruction], inputs: dict[HloInstruction, int]) -> None:
        """Traverse from the roots to the inputs."""
        dims = self.sizes
        at = identity(len(dims))
        inner = _innermost(at, dims)
        for root in map(written_block, roots):
            own = at if root.dims == dims else reshaped(at, dims, root.dims)
            self._add_use(root, self._use(own, inner), 1.0)
        for x in reversed(post_order(roots, inputs)):
            uses = self.demands.get(x, {})
            if x in inputs:
                self.reads[x] = uses
            elif x.opcode is not Opcode.CONSTANT:
                self._compute(x, uses)

    def _use(self, at: IndexMap, inner: int | None) -> _ElementUse:
        """Return the ``_ElementUse`` of this map and inner variable; there is one of each."""
        found = self.uses.get((at, inner))
        if found is None:
            variables = _variables(at)
            times = self._times(variables, inner)
            found = self.uses[at, inner] = _ElementUse(at, inner, variables, times)
        return found

    def _times(self, variables: frozenset[int], inner: int | None) -> float:
        """Return how often a value is computed there; the innermost loop is left out if the value ignores it."""
        if not variables:
            return 1.0
        all_points = math.prod(map(float, self.sizes))
        if inner is None or inner in variables:
            return all_points
        return all_points / max(self.sizes[inner], 1)

    def _points(self, variables: frozenset[int]) -> float:
        return math.prod(float(self.sizes[v]) for v in variables)

    def _add_use(self, x: HloInstruction, use: _ElementUse, share: float) -> None:
        uses = self.demands.setdefault(x, {})
        uses[use] = min(1.0, uses.get(use, 0.0) + share)

    def _compute(self, x: HloInstruction, uses: dict[_ElementUse, float]) -> None:
        each = self.cost_model.element(x)
        elementwise = OPS[x.opcode].elementwise
        self.counting += len(uses) if x.opcode is Opcode.IOTA else 0
        for use, share in uses.items():
            if each:
                self.compute += use.times * share * each
                self.evaluations += use.times * share
                self.code += 1
            if elementwise:
                for operand in x.operands:
                    same = use if operand.array_shape.rank else self._use((), use.inner)
                    self._add_use(operand, same, share)
                continue
            if x.opcode in (Opcode.CONCATENATE, Opcode.PAD):
                add_edges(self.edges, x, use.map)
            accesses = operand_accesses(x, use.map)
            for operand, access in zip(x.operands, accesses, strict=True):
                there = self._use(access.map, use.inner)
                self._add_use(operand, there, share * access.share)

    # ---- memory
    def cost(self, roots: Sequence[HloInstruction]) -> KernelCost:
        cost_model = self.cost_model
        written = [float(written_block(root).shape.byte_size) for root in roots]
        memory = sum(map(cost_model.array, written))
        read = 0.0
        for x, uses in self.reads.items():
            if not x.array_shape.rank:
                continue
            item = x.array_shape.element_type.byte_size
            touched = min(
                sum(self._points(p.variables) * share for p, share in uses.items()),
                x.array_shape.num_elements,
            )
            read += touched * item
            memory += cost_model.array(touched * item) * _stride_factor(x, uses)
            again = sum(p.times * share for p, share in uses.items()) - touched
            if again > 0:
                memory += cost_model.again(again * item, x.shape.byte_size)
        pieces = piece_count(self.edges, self.sizes)
        seconds = cost_model.kernel(max(self.compute, memory), self._rows(self.sizes), pieces)
        return KernelCost(
            seconds,
            self.compute,
            read,
            sum(written),
            self.evaluations,
            self.code,
            self.counting + sum(map(len, self.reads.values())),
            sum(map(len, self.demands.values())),
            pieces,
        )

    def _rows(self, dims: tuple[int, ...]) -> float:
        """Return how often the innermost loop begins; dimensions that are contiguous in all arrays form one loop."""
        wide = [d for d, size in enumerate(dims) if size != 1]
        run = len(wide)
        for x, uses in self.reads.items():
            for use in uses:
                run = min(run, _trailing_run(use.map, x.dims, dims, wide))
        return float(math.prod(dims[d] for d in wide[: len(wide) - max(run, 1)]))


def _stride_factor(x: HloInstruction, uses: Collection[_ElementUse]) -> float:
    """Return the mean slowdown over the reads of ``x``."""
    return sum(_use_factor(x, use) for use in uses) / max(len(uses), 1)


def _use_factor(x: HloInstruction, use: _ElementUse) -> float:
    minor = next((i for i, n in zip(use.map[::-1], x.dims[::-1], strict=True) if n > 1), None)
    if minor is None or use.inner is None or use.inner in minor.variables:
        return 1.0
    return STRIDED if use.inner in use.variables else 1.0


def _variables(at: IndexMap) -> frozenset[int]:
    return frozenset[int]().union(*(index.variables for index in at))


def _innermost(at: IndexMap, dims: tuple[int, ...]) -> int | None:
    """Return the loop variable that moves along the last dimension of more than one element."""
    for index, size in zip(reversed(at), reversed(dims), strict=True):
        if size > 1:
            return _last(index)
    return None


def _last(index: Index) -> int | None:
    return index.plain if index.plain is not None else max(index.variables, default=None)


def _trailing_run(
    at: IndexMap, own: tuple[int, ...], dims: tuple[int, ...], wide: Sequence[int]
) -> int:
    """Return how many of the last ``wide`` loop dimensions move through the array in its order, or not at all."""
    variables = _variables(at)
    absent = 0
    for d in reversed(wide):
        if d in variables:
            break
        absent += 1
    if absent:
        return absent
    steady = 0
    moving = [(index, size) for index, size in zip(at, own, strict=True) if size != 1]
    for (index, size), d in zip(reversed(moving), reversed(wide), strict=False):
        if index.plain != d:
            break
        steady += 1
        if size != dims[d]:
            break
    return steady
