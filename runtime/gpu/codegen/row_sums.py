"""Totals of row fusions on a GPU: of a thread, of a row's lanes, and of the warps that share a row."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.combining import neutral_element
from runtime.codegen.ir.element_operations import stored_type
from runtime.gpu.codegen.launch import WARP
from runtime.gpu.codegen.row_inputs import RowPart
from runtime.gpu.codegen.row_schedule import RowPlan
from runtime.gpu.codegen.thread_writer import PtxWriter
from runtime.program.records.rows import Reduction
from spmd.device import ReductionKind

#: Reductions whose operands may be exchanged.
_COMMUTE = frozenset(ReductionKind) - {ReductionKind.MIN, ReductionKind.MAX}


class RowSums:
    """Emitter of totals. ``sums``: for each reduction and row of the thread, the address of its total on the stack.

    wides: types of totals. thread, warp, lane: numbers of the thread. first: its first group of a row.
    """

    writer: PtxWriter
    plan: RowPlan
    reductions: tuple[Reduction, ...]
    wides: list[str]
    sums: list[list[str]]
    thread: str
    warp: str
    lane: str
    first: str

    def begin_sums(self, each: RowPart) -> None:
        for j in each.reductions:
            kind = self.reductions[j]
            start = self.writer.value(neutral_element(kind.element_type, kind.kind))
            for accumulator in self.sums[j]:
                self.writer.add(f"store {self.wides[j]} {start}, ptr {accumulator}")

    def add_up(self, j: int, elements: Sequence[str], valid: str | None) -> None:
        """Add elements to the thread's own totals; the neutral element replaces invalid ones."""
        writer, wide, kind = self.writer, self.wides[j], self.reductions[j]
        stored = stored_type(kind.element_type)
        for e, x in enumerate(elements):
            own = writer.value(f"call {wide} @widen_reduction{j}({stored} {x})")
            if valid is not None:
                neutral = writer.value(neutral_element(kind.element_type, kind.kind))
                own = writer.value(f"select i1 {valid}, {wide} {own}, {wide} {neutral}")
            accumulator = self.sums[j][e if self.plan.side > 1 else 0]
            total = writer.value(f"load {wide}, ptr {accumulator}")
            writer.add(f"store {wide} {self.combined(j, total, own)}, ptr {accumulator}")

    def combined(self, j: int, a: str, b: str) -> str:
        wide = self.wides[j]
        return self.writer.value(f"call {wide} @combine_reduction{j}({wide} {a}, {wide} {b})")

    def totals(self, reductions: Sequence[int]) -> None:
        """Combine the totals of all threads of a row; all of them get the result, with the same bits."""
        writer, plan = self.writer, self.plan
        own = [(j, accumulator) for j in reductions for accumulator in self.sums[j]]
        totals = []
        for j, accumulator in own:
            total = writer.value(f"load {self.wides[j]}, ptr {accumulator}")
            if plan.along_rows:
                total = self.over_lanes(j, total, min(plan.lanes, WARP))
            totals.append(total)
        if plan.shares > 1 and own:
            totals = self.shared(own, totals)
        for (j, accumulator), total in zip(own, totals, strict=True):
            writer.add(f"store {self.wides[j]} {total}, ptr {accumulator}")

    def shared(self, own: Sequence[tuple[int, str]], totals: Sequence[str]) -> list[str]:
        """Write every share's totals to shared memory; all threads then combine them in the same order."""
        writer, plan = self.writer, self.plan
        share = self.warp if plan.along_rows else self.first
        index = "0" if plan.along_rows else self.lane
        before = writer.value(f"mul i32 {share}, {plan.totals_per_share}")
        number = writer.value(f"add i32 {before}, {index}")
        sizes = [self.wide_bytes(j) for j, _ in own]
        starts = [
            writer.shared(plan.shares * plan.totals_per_share * size, max(16, size))
            for size in sizes
        ]
        for (j, _), total, start, size in zip(own, totals, starts, sizes, strict=True):
            writer.store_shared(self.wides[j], total, start, size, number)
        writer.barrier()
        found = []
        for (j, _), start, size in zip(own, starts, sizes, strict=True):
            total = ""
            for n in range(plan.shares):
                other = writer.value(f"add i32 {index}, {n * plan.totals_per_share}")
                x = writer.load_shared(self.wides[j], start, size, other)
                total = self.combined(j, total, x) if total else x
            found.append(total)
        return found

    def wide_bytes(self, j: int) -> int:
        kind = self.reductions[j].element_type
        return 4 if self.wides[j] == "float" else max(1, kind.byte_size)

    def over_lanes(self, j: int, x: str, lanes: int) -> str:
        """Combine the values of ``lanes`` neighbours: halves are exchanged, the lower one's value comes first."""
        writer, wide = self.writer, self.wides[j]
        mask = lanes // 2
        while mask:
            other = writer.exchanged(wide, 8 * self.wide_bytes(j), x, mask)
            if self.reductions[j].kind in _COMMUTE:
                x = self.combined(j, x, other)
            else:
                bit = writer.value(f"and i32 {self.thread}, {mask}")
                upper = writer.value(f"icmp ne i32 {bit}, 0")
                low = writer.value(f"select i1 {upper}, {wide} {other}, {wide} {x}")
                high = writer.value(f"select i1 {upper}, {wide} {x}, {wide} {other}")
                x = self.combined(j, low, high)
            mask //= 2
        return x
