"""Row fusions with few long rows on a GPU: several blocks process parts of a row, a second launch combines totals.

The workspace holds an array of totals [part, row] for each reduction. The order in which they are combined depends only
on sizes, layouts and the target GPU.
"""

from __future__ import annotations

import math
from dataclasses import replace

from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import (
    ALIGNMENT,
    WARP,
    ArgumentKind,
    GpuTarget,
    KernelArgument,
    KernelSource,
)
from runtime.gpu.codegen.row_inputs import RowPart, RowParts, row_parts
from runtime.gpu.codegen.row_schedule import RowPlan, bytes_per_block, power_of_two, row_plan
from runtime.gpu.codegen.rows import Rows
from runtime.program.records.rows import RowKernel

#: Rows are split so that there are about this many blocks per multiprocessor.
_BLOCKS = 4
#: Rows are not split if a block reads at most this many bytes. That takes about a microsecond, after which a second
#: launch could begin at the earliest.
_MOST_BYTES = 64 << 10
_WORKSPACE = KernelArgument(ArgumentKind.WORKSPACE)


@kernel_emitter(RowKernel)
def emit_rows(kernel: RowKernel, arrays: GpuArrays) -> Sources:
    """Return the launches of a row fusion: one, or two if its rows are split."""
    fusion = kernel.fusion
    if any(fusion.dims[d] == 0 for d in fusion.counted):
        return ()
    parts = row_parts(kernel, arrays)
    plan = row_plan(parts, arrays.target)
    splits = splits_of(parts, plan, arrays.target)
    narrow = row_plan(parts, arrays.target, vectorized=False)
    if splits > 1 and bytes_per_block(parts, narrow) <= _MOST_BYTES:
        plan, splits = narrow, 1
    if splits > 1:
        return split_sources(kernel, parts, plan, arrays, splits)
    return (Rows(kernel, parts, plan, arrays).source(),)


def splits_of(parts: RowParts, plan: RowPlan, target: GpuTarget) -> int:
    """Return the number of parts into which each row is split.

    It is 1 if there are enough rows, or if there are several passes, since a later pass needs the totals of all parts.
    """
    if len(parts.passes) > 1 or not parts.fusion.reductions or plan.chunks == 1:
        return 1
    wanted = -(-_BLOCKS * target.multiprocessors // plan.rounds)
    return 1 if wanted < _BLOCKS else min(plan.chunks, wanted)


def split_sources(
    kernel: RowKernel, parts: RowParts, plan: RowPlan, arrays: GpuArrays, splits: int
) -> tuple[KernelSource, ...]:
    """Return the two launches of a row fusion whose rows are split into ``splits`` parts."""
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
        #: Offset of the totals of each reduction in the workspace in bytes, then the size of the workspace.
        self.offsets = [0]
        for j in range(len(self.reductions)):
            size = splits * self.count * self.wide_bytes(j)
            self.offsets.append(self.offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)

    def total_address(self, j: int, part: str, e: int) -> str:
        """Emit the address of the total of reduction ``j`` of part ``part`` (an index) of the thread's row ``e``."""
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
    """Writer of the first launch: it computes the totals of parts of rows, and the results at all indices."""

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
        """Emit stores of the totals to the workspace by the first thread of each row."""
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
        """Emit nothing, since the second launch computes the values per row."""


class _RowTotals(_Split):
    """Writer of the second launch: it reduces the totals of all parts of a row, and computes the values per row."""

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
