"""Few long rows on a GPU: several blocks process parts of a row, and a second launch combines their totals.

Totals lie in the workspace, for each reduction (part, row); they are combined in the parts' order.
"""

from __future__ import annotations

import math
from dataclasses import replace

from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import (
    ALIGNMENT,
    WARP,
    ArgumentKind,
    KernelSource,
    PtxArgument,
    PtxTarget,
)
from runtime.gpu.codegen.row_inputs import RowPart, RowParts, row_parts
from runtime.gpu.codegen.row_schedule import RowPlan, power_of_two, row_plan
from runtime.gpu.codegen.rows import Rows
from runtime.program.records.rows import RowKernel

#: Blocks per multiprocessor that parts of rows should provide.
_BLOCKS = 4
_WORKSPACE = PtxArgument(ArgumentKind.WORKSPACE)


@kernel_emitter(RowKernel)
def emit_rows(kernel: RowKernel, arrays: GpuArrays) -> Sources:
    fusion = kernel.fusion
    if any(fusion.dims[d] == 0 for d in fusion.counted):
        return ()
    parts = row_parts(kernel, arrays)
    plan = row_plan(parts, arrays.target)
    splits = splits_of(parts, plan, arrays.target)
    if splits > 1:
        return split_sources(kernel, parts, plan, arrays, splits)
    return (Rows(kernel, parts, plan, arrays).source(),)


def splits_of(parts: RowParts, plan: RowPlan, target: PtxTarget) -> int:
    """Return the number of parts of a row: 1 if there are enough rows, or a later pass needs the totals."""
    if len(parts.passes) > 1 or not parts.fusion.reductions or plan.chunks == 1:
        return 1
    wanted = -(-_BLOCKS * target.multiprocessors // plan.rounds)
    return 1 if wanted < _BLOCKS else min(plan.chunks, wanted)


def split_sources(
    kernel: RowKernel, parts: RowParts, plan: RowPlan, arrays: GpuArrays, splits: int
) -> tuple[KernelSource, ...]:
    lanes = min(WARP, power_of_two(splits))
    last = replace(
        plan,
        along_rows=True,
        vector_elements=1,
        lanes=lanes,
        threads=4 * WARP,
        row_groups=math.prod(parts.counted),
        rows_per_block=4 * WARP // lanes,
    )
    made = [
        _Parts(kernel, parts, plan, arrays, splits),
        _RowTotals(kernel, parts, last, arrays, splits),
    ]
    size = made[0].offsets[-1]
    return tuple(replace(each.source(), workspace_bytes=size) for each in made)


class _Split(Rows):
    def __init__(
        self, kernel: RowKernel, parts: RowParts, plan: RowPlan, arrays: GpuArrays, splits: int
    ) -> None:
        super().__init__(kernel, parts, plan, arrays)
        self.splits = splits
        self.count = math.prod(parts.counted)
        #: Offset of each reduction's totals in the workspace, and the total size.
        self.offsets = [0]
        for j in range(len(self.reductions)):
            size = splits * self.count * self.wide_bytes(j)
            self.offsets.append(self.offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)

    def total_address(self, j: int, part: str, e: int) -> str:
        """Emit the address of the total of a part (an index) of the thread's row number ``e``."""
        writer, t = self.writer, self.writer.index
        row = writer.value(f"mul nuw nsw {t} {self.at}, {self.plan.side}")
        before = writer.value(f"mul nuw nsw {t} {part}, {self.count}")
        first = writer.value(f"add nuw nsw {t} {before}, {row}")
        number = writer.value(f"add nuw nsw {t} {first}, {e}")
        way = writer.value(f"mul i64 {writer.to_i64(number)}, {self.wide_bytes(j)}")
        begin = writer.value(
            f"getelementptr i8, ptr {writer.pointer(_WORKSPACE)}, i64 {self.offsets[j]}"
        )
        return writer.value(f"getelementptr i8, ptr {begin}, i64 {way}")


class _Parts(_Split):
    """First launch: totals of parts, and what is computed at all indices."""

    entry = "spmd_row_parts"

    @property
    def rounds(self) -> int:
        return self.plan.rounds * self.splits

    def round_of(self, number: str) -> str:
        value, t = self.writer.value, self.writer.index
        self.part = value(f"udiv {t} {number}, {self.plan.rounds}")
        return value(f"urem {t} {number}, {self.plan.rounds}")

    def chunks(self) -> tuple[str, str]:
        value, t = self.writer.value, self.writer.index
        each = -(-self.plan.chunks // self.splits)
        first = value(f"mul nuw nsw {t} {self.part}, {each}")
        end = value(f"add nuw nsw {t} {first}, {each}")
        name = f"@llvm.umin.{t}({t} {end}, {t} {self.plan.chunks})"
        return first, value(f"call {t} {name}")

    def end_sums(self, number: int, each: RowPart) -> None:
        """Write the totals to the workspace, by the first thread of a row."""
        writer = self.writer
        valid = writer.value(f"icmp eq i32 {self.first}, 0")
        if self.counts is not None:
            valid = writer.value(f"and i1 {valid}, {self.counts}")
        with writer.when(valid):
            for j in each.reductions:
                for e, own in enumerate(self.sums[j]):
                    total = writer.value(f"load {self.wides[j]}, ptr {own}")
                    address = self.total_address(j, self.part, e)
                    align = self.wide_bytes(j)
                    writer.add(f"store {self.wides[j]} {total}, ptr {address}, align {align}")

    def row_part(self, number: int, each: RowPart) -> None:
        """Emit nothing: the second launch computes the values per row."""


class _RowTotals(_Split):
    """Second launch: rows of parts' totals, and what is computed with the rows' totals."""

    entry = "spmd_row_totals"

    def emit_pass(self, number: int, each: RowPart) -> None:
        writer, plan = self.writer, self.plan
        first = writer.to_index(self.first)
        with writer.strided_loop(first, str(self.splits), str(plan.lanes)) as part:
            for j in each.reductions:
                wide, align = self.wides[j], self.wide_bytes(j)
                address = self.total_address(j, part, 0)
                x = writer.value(f"load {wide}, ptr {address}, align {align}")
                total = writer.value(f"load {wide}, ptr {self.sums[j][0]}")
                combined = self.combined(j, total, x)
                writer.add(f"store {wide} {combined}, ptr {self.sums[j][0]}")
