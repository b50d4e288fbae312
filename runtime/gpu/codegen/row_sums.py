"""Reductions of row fusions on a GPU: totals of a thread, of the lanes of a row, and of the warps of a row."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.combining import neutral_element
from runtime.codegen.elements.storage import stored_type
from runtime.gpu.codegen.launch import WARP
from runtime.gpu.codegen.row_inputs import RowPart
from runtime.gpu.codegen.row_schedule import RowPlan
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.rows import Reduction
from spmd.device import ReductionKind

#: Reductions of f64 whose result may depend on the order of the two operands: zeros of either sign, and nan.
_IN_ORDER = frozenset({ReductionKind.MIN, ReductionKind.MAX})


class RowSums:
    """Emitter of the reductions of a row fusion.

    sums: for each reduction, and each row of the thread, the stack address of the thread's total. wides: LLVM types of
    the totals. thread, warp, lane: number of the thread in its block, of its warp, and of its lane in the row (i32).
    first: number of the thread's first group of a row (i32).
    """

    writer: ThreadWriter
    plan: RowPlan
    reductions: tuple[Reduction, ...]
    wides: list[str]
    sums: list[list[str]]
    thread: str
    warp: str
    lane: str
    first: str

    def begin_sums(self, each: RowPart) -> None:
        """Emit stores of the neutral elements to the totals of pass ``each``."""
        for j in each.reductions:
            kind = self.reductions[j]
            start = self.writer.value(neutral_element(kind.element_type, kind.kind))
            for accumulator in self.sums[j]:
                self.writer.add(f"store {self.wides[j]} {start}, ptr {accumulator}")

    def add_up(self, j: int, elements: Sequence[str], valid: str | None) -> None:
        """Emit the combination of the group ``elements`` with the thread's totals of reduction ``j``.

        valid: i1 that is false if the group does not exist, so that the neutral element is used; None: it exists.
        """
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
        """Emit the combination of two totals of reduction ``j``."""
        wide = self.wides[j]
        return self.writer.value(f"call {wide} @combine_reduction{j}({wide} {a}, {wide} {b})")

    def totals(self, reductions: Sequence[int]) -> None:
        """Emit the combination of the totals of all threads of a row. All threads of the row get the same bits."""
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
        """Emit stores of the totals of each share to shared memory, and their combination in ascending order.

        own: (reduction, stack address) of each total. Every thread combines all shares, so all get the same bits.
        """
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
        """Return the size of a total of reduction ``j`` in bytes."""
        kind = self.reductions[j].element_type
        return 4 if self.wides[j] == "float" else max(1, kind.byte_size)

    def over_lanes(self, j: int, x: str, lanes: int) -> str:
        """Emit the combination of the values ``x`` of ``lanes`` adjacent lanes by butterfly exchanges.

        If the reduction is not commutative, the value of the lower lane is the first operand.
        """
        writer, wide = self.writer, self.wides[j]
        mask = lanes // 2
        while mask:
            other = writer.exchanged(wide, 8 * self.wide_bytes(j), x, mask)
            if wide != "double" or self.reductions[j].kind not in _IN_ORDER:
                x = self.combined(j, x, other)
            else:
                bit = writer.value(f"and i32 {self.thread}, {mask}")
                upper = writer.value(f"icmp ne i32 {bit}, 0")
                low = writer.value(f"select i1 {upper}, {wide} {other}, {wide} {x}")
                high = writer.value(f"select i1 {upper}, {wide} {x}, {wide} {other}")
                x = self.combined(j, low, high)
            mask //= 2
        return x
