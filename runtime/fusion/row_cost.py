"""What a row kernel costs, pass by pass, from its plan.

Each pass computes its own graph at all indices, what is per row comes once for a row. Operands are fetched by the first
pass that reads them; later ones find the row in the cache, as they do what earlier ones have kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runtime.fusion.element_graph import ElementGraph, InputLeaf
from runtime.fusion.prices import STRIDED, KernelCost, Prices
from runtime.fusion.row_fusion import RowFusion, RowPass, Source
from runtime.fusion.view_path import Place, place_of
from spmd.hlo import HloInstruction


def row_cost(
    plan: RowFusion,
    roots: Sequence[HloInstruction],
    inputs: Sequence[HloInstruction],
    prices: Prices,
) -> KernelCost:
    """Of the kernel of ``plan``, which gives ``roots`` from ``inputs``, by their numbers there."""
    return _Passes(plan, inputs, prices).cost(roots)


@dataclass
class _Passes:
    plan: RowFusion
    inputs: Sequence[HloInstruction]
    prices: Prices
    compute: float = 0.0
    evaluations: float = 0.0
    code: int = 0
    read: float = 0.0
    seen: set[tuple[int, Place]] = field(default_factory=set)

    def cost(self, roots: Sequence[HloInstruction]) -> KernelCost:
        plan, prices = self.plan, self.prices
        written = [float(root.shape.byte_size) for root in roots]
        memory = sum(map(prices.array, written))
        near = self._row_bytes()
        for each in plan.passes:
            self._compute(each)
            memory += sum(self._fetch(leaf, near) for leaf in _read(plan, each.elements))
            kept = self._points * sum(plan.kept[n].byte_size for n in each.kept)
            memory += prices.again(kept * 2, near)
        seconds = prices.kernel(max(self.compute, memory), self._beginnings())
        return KernelCost(
            seconds, self.compute, self.read, sum(written), self.evaluations, self.code
        )

    @property
    def _points(self) -> float:
        return float(math.prod(self.plan.dims))

    @property
    def _rows(self) -> float:
        return self._points / max(self.plan.row_length, 1)

    def _compute(self, each: RowPass) -> None:
        self._add(self._points, *self.prices.program(each.elements.program))
        for graph in (each.inits, each.rows):
            self._add(self._rows, *self.prices.program(graph.program))
        for n in each.reductions:
            combining = self.prices.combining(self.plan.reductions[n].element_type)
            self._add(self._points, combining, 1)

    def _add(self, times: float, each: float, steps: int) -> None:
        self.compute += times * each
        self.evaluations += times * steps
        self.code += steps

    def _fetch(self, leaf: InputLeaf, near: float) -> float:
        """Seconds until all that is read there has come; ``near``: bytes of a row."""
        x = self.inputs[leaf.number]
        place = place_of(leaf.path, x.dims)
        assert place is not None, "there is a plan"
        item = x.array_shape.element_type.byte_size
        moves = [n for n, step in zip(self.plan.dims, place.strides, strict=True) if step]
        touched = float(min(math.prod(moves), x.array_shape.num_elements) * item)
        reads = self._points * item if self._inner_step(place) else self._rows * item
        if (leaf.number, place) in self.seen:
            return self.prices.again(reads, near)
        self.seen.add((leaf.number, place))
        self.read += touched
        factor = STRIDED if abs(self._inner_step(place)) > 1 else 1.0
        again = self.prices.again(max(reads - touched, 0.0), x.shape.byte_size)
        return self.prices.array(touched) * factor + again

    def _inner_step(self, place: Place) -> int:
        """Along the last dimension that has several elements."""
        wide = [step for n, step in zip(self.plan.dims, place.strides, strict=True) if n > 1]
        return wide[-1] if wide else 0

    def _row_bytes(self) -> float:
        """What passes over one row touch."""
        plan = self.plan
        operands = {leaf.number for each in plan.passes for leaf in _read(plan, each.elements)}
        sizes = [self.inputs[n].array_shape.element_type.byte_size for n in operands]
        sizes += [kind.byte_size for kind in plan.kept]
        return float(plan.row_length * sum(sizes))

    def _beginnings(self) -> float:
        """How often an innermost loop begins: once for a row and pass, or along the rows that lie side by side."""
        plan = self.plan
        if plan.along_rows:
            return self._rows * len(plan.passes)
        side_by_side = 1
        for d in reversed(range(len(plan.dims))):
            if d in plan.axes and plan.dims[d] > 1:
                break
            side_by_side *= plan.dims[d]
        return self._points / max(side_by_side, 1)


def _read(plan: RowFusion, graph: ElementGraph) -> Iterator[InputLeaf]:
    """Where elements of operands are read."""
    for leaf in graph.leaves:
        if isinstance(leaf, InputLeaf) and plan.inputs[leaf.number].source is Source.OPERAND:
            yield leaf
