"""Cost of a row kernel, pass by pass.

Each pass computes, at all indices, the values that its reductions and results need from operands, from values of the
row and from values that earlier passes have cached. Values per row are computed once per row. The first pass that reads
an operand fetches it from memory; later passes find the row in the cache. The cost does not need a plan of the kernel,
which would take longer to make.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from runtime.fusion.cost.cost_model import CostModel, KernelCost
from runtime.fusion.row_region import RowRegion
from spmd.cost.traffic import STRIDED
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs


def row_cost(region: RowRegion, cost_model: CostModel) -> KernelCost:
    """Return the cost of the row kernel that computes ``region``."""
    return _Passes(region, cost_model).cost()


@dataclass
class _Passes:
    """Accumulator of the work and the reads of all passes of a row kernel."""

    region: RowRegion
    cost_model: CostModel
    compute: float = 0.0
    code: int = 0
    #: Passes that read each operand at all indices, and whether they read it through a transpose of the innermost
    #: dimension.
    reads: dict[HloInstruction, dict[int, bool]] = field(default_factory=dict)
    per_row: dict[HloInstruction, None] = field(default_factory=dict)

    def cost(self) -> KernelCost:
        """Return the cost of the kernel."""
        region, cost_model = self.region, self.cost_model
        cached = region.worth_keeping()
        for level, starts in region.pass_roots.items():
            self._add_pass(level, starts, cached)
        for reduce in region.reduces:
            kind = reduce.array_shape.element_type
            self._add(region.points, cost_model.combining(kind))
        for x in region.order:
            if region.is_inside(x) and region.is_per_row(x) and x not in region.reduces:
                self._add(region.row_count, cost_model.element(x))
                self.per_row.update((y, None) for y in x.operands if y in region.operands)
        written = [float(root.shape.byte_size) for root in region.roots]
        read, memory = self._fetched()
        memory += sum(map(cost_model.array, written))
        keeping = region.points * sum(x.array_shape.element_type.byte_size for x in cached)
        memory += cost_model.again(2 * keeping, self._row_bytes(cached))
        rows = self._beginnings()
        seconds = cost_model.kernel(max(self.compute, memory), rows)
        # A kernel with more members may cache more values, which later passes then do not compute again.
        least = cost_model.kernel(self.compute if len(region.pass_roots) == 1 else 0.0, rows)
        return KernelCost(seconds, least, read, sum(written), self.code)

    def _add(self, times: float, each: float) -> None:
        """Add ``times`` evaluations of an instruction that takes ``each`` seconds per element."""
        if each:
            self.compute += times * each
            self.code += 1

    def _add_pass(
        self, level: int, starts: Iterable[HloInstruction], cached: Iterable[HloInstruction]
    ) -> None:
        """Add the cost of the values that pass ``level`` computes at all indices.

        ``starts`` are the values that the pass must provide, and ``cached`` the values that the pass of their level
        caches.
        """
        region = self.region
        ends = dict.fromkeys((*region.row_values, *region.reduces))
        available = {x for x in cached if region.levels[x] < level}
        done: set[HloInstruction] = set()
        stack = [(x, False) for x in starts]
        while stack:
            x, across = stack.pop()
            if x in region.operands:
                passes = self.reads.setdefault(x, {})
                passes[level] = passes.get(level, False) or across
                continue
            if x in done or x in ends or x in available:
                continue
            done.add(x)
            self._add(region.points, self.cost_model.element(x))
            across = across or _transposes(x)
            stack.extend((operand, across) for operand in x.operands)

    def _fetched(self) -> tuple[float, float]:
        """Return the bytes of operands that the kernel touches, and the seconds of all reads of these bytes."""
        region, cost_model = self.region, self.cost_model
        touched_bytes = seconds = 0.0
        row_bytes = self._row_bytes(())
        for x, passes in self.reads.items():
            size = float(x.shape.byte_size)
            count = x.array_shape.num_elements
            if count <= 1:
                continue
            item = x.array_shape.element_type.byte_size
            reads = (region.points if count > region.row_count else region.row_count) * item
            touched = min(size, reads)
            touched_bytes += touched
            seconds += cost_model.array(touched) * (STRIDED if any(passes.values()) else 1.0)
            seconds += cost_model.again(reads - touched, size)
            seconds += cost_model.again((len(passes) - 1) * reads, row_bytes)
        for x in self.per_row:
            if x not in self.reads and x.array_shape.num_elements > 1:
                touched_bytes += x.shape.byte_size
                seconds += cost_model.array(x.shape.byte_size)
        return touched_bytes, seconds

    def _row_bytes(self, cached: Iterable[HloInstruction]) -> float:
        """Return the bytes of one row of the operands and of the ``cached`` values."""
        arrays = (*self.reads, *cached)
        return self.region.row_length * sum(x.array_shape.element_type.byte_size for x in arrays)

    def _beginnings(self) -> float:
        """Return how often an innermost loop begins: once per row and pass, or once per run of adjacent rows."""
        region = self.region
        side_by_side = 1
        for d in reversed(range(len(region.dims))):
            if region.dims[d] > 1 and d in region.axes:
                break
            side_by_side *= region.dims[d]
        if side_by_side == 1:
            return region.row_count * (1 + max(region.pass_roots))
        return region.points / side_by_side


def _transposes(x: HloInstruction) -> bool:
    """Return whether ``x`` is a transpose whose innermost dimension is not that of its operand."""
    if x.opcode is not Opcode.TRANSPOSE:
        return False
    dimensions = x.attrs_as(DimensionsAttrs).dimensions
    wide = [d for d in dimensions if x.operand(0).dims[d] > 1]
    return bool(wide) and wide[-1] != max(wide)
