"""Distribution of a row fusion's rows among threads; it depends on sizes alone."""

from __future__ import annotations

import math

from runtime.gpu.codegen.launch import ALIGNMENT, RESIDENT_THREADS, WARP, PtxTarget
from runtime.gpu.codegen.row_inputs import RowParts
from spmd.lazy_dataclass import dataclass

#: Most elements of a row, over all arrays and cached values, that a thread has in registers; limited by
#: registers.
_MOST_LIVE = 96
#: Groups of neighbours of a row per thread, if more threads are available.
_FEW = 4
_MOST_UNROLLED = 8
#: Most threads of a block for one long row; threads of a block for several short ones.
_MOST_THREADS, _THREADS = 512, 128
#: Rounds of the grid beyond which blocks process several rows.
_WAVES = 4


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Distribution. vector_elements: neighbours that a thread processes at once, along a row or of adjacent rows.

    lanes: threads along a row (a power of two), or a warp over groups of rows. step: stride in groups of a row between
    those of a thread; unrolled: groups that are unrolled, chunks: times. shares: totals of a row that are combined in
    shared memory (1: none), each for ``totals_per_share`` groups of rows.
    """

    along_rows: bool
    vector_elements: int
    lanes: int
    threads: int
    groups: int
    unrolled: int
    chunks: int
    row_groups: int
    rows_per_block: int
    most_blocks: int

    @property
    def along(self) -> int:
        return self.vector_elements if self.along_rows else 1

    @property
    def side(self) -> int:
        """The number of rows of a thread."""
        return 1 if self.along_rows else self.vector_elements

    @property
    def step(self) -> int:
        return self.lanes if self.along_rows else self.threads // self.lanes

    @property
    def shares(self) -> int:
        return max(1, self.lanes // WARP) if self.along_rows else self.step

    @property
    def totals_per_share(self) -> int:
        return 1 if self.along_rows else self.lanes

    @property
    def rounds(self) -> int:
        """The number of rounds of all blocks together."""
        return -(-self.row_groups // self.rows_per_block)


def row_plan(parts: RowParts, target: PtxTarget) -> RowPlan:
    along_rows = parts.fusion.along_rows
    rows, length = math.prod(parts.counted), math.prod(parts.reduced)
    live = max(1, _live_values(parts))
    if along_rows:
        vector_elements = _vector_elements(parts, parts.reduced[-1], parts.reduced_strides, 1)
        groups = length // vector_elements
        lanes = _lanes(groups, vector_elements * live)
        threads = lanes if lanes > WARP else _THREADS
        rows_per_block = threads // lanes
        row_groups, step = rows, lanes
    else:
        lanes = WARP
        vector_elements = _vector_elements(
            parts, parts.counted[-1], parts.counted_strides, rows // WARP
        )
        row_groups, groups = rows // vector_elements, length
        rows_per_block = lanes
        few = -(-row_groups // lanes) < 2 * target.multiprocessors
        step = min(32 if few else 8, power_of_two(max(1, length)))
        if live * vector_elements > 16:
            step = min(step, 16)
        totals = sum(max(4, each.element_type.byte_size) for each in parts.fusion.reductions)
        while step > 1 and step * lanes * vector_elements * totals > target.shared_bytes:
            step //= 2
        threads = lanes * step
    own = max(1, -(-groups // step))
    unrolled = own
    if own > _MOST_UNROLLED or own * vector_elements * live > _MOST_LIVE:
        unrolled = max(1, min(_FEW, own, _MOST_LIVE // 2 // (vector_elements * live)))
    chunks = -(-own // unrolled)
    most = target.multiprocessors * (RESIDENT_THREADS // threads) * _WAVES
    return RowPlan(
        along_rows,
        vector_elements,
        lanes,
        threads,
        groups,
        unrolled,
        chunks,
        row_groups,
        rows_per_block,
        max(1, most),
    )


def _lanes(groups: int, live: int) -> int:
    """Return the threads of a row: each has few groups, and their values fit into registers."""
    if groups <= WARP * _FEW and _FEW * live <= _MOST_LIVE:
        return min(WARP, power_of_two(max(1, groups)))
    lanes = min(_MOST_THREADS, power_of_two(-(-groups // _FEW)))
    while lanes < _MOST_THREADS and -(-groups // lanes) * live > _MOST_LIVE:
        lanes *= 2
    return lanes


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _live_values(parts: RowParts) -> int:
    """Return the number of arrays and cached values whose elements a thread has in registers at once."""
    arrays = {
        leaf
        for each in parts.passes
        for leaf in each.elements.leaves
        if isinstance(leaf, int) and any(parts.reduced_strides[leaf])
    }
    results = max((len(each.results) for each in parts.passes), default=0)
    return len(arrays) + len(parts.fusion.cached) + results


def _vector_elements(
    parts: RowParts, size: int, strides: tuple[tuple[int, ...], ...], most: int
) -> int:
    """Return the neighbours of the narrowest array that one instruction moves; they divide ``size``."""
    packed = [
        access.item
        for access, own in zip(parts.accesses, strides, strict=True)
        if not access.counts and own[-1] == access.item
    ]
    if not packed:
        return 1
    count = min(8, max(1, ALIGNMENT // min(packed)))
    while count > 1 and (size % count or (not parts.fusion.along_rows and count > most)):
        count //= 2
    return count
