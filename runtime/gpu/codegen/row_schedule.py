"""Distribution of the rows of a row fusion among threads. It depends only on sizes, layouts and the target GPU."""

from __future__ import annotations

import math

from runtime.gpu.codegen.launch import ALIGNMENT, RESIDENT_THREADS, WARP, GpuTarget
from runtime.gpu.codegen.row_inputs import RowParts
from spmd.lazy_dataclass import dataclass

#: Most elements of all arrays and cached values that a thread holds in registers.
_MOST_LIVE = 96
#: Most groups of a row that a thread gets if the row can have more threads.
_FEW = 4
_MOST_UNROLLED = 8
#: Most threads of a block that processes one long row; threads of a block that processes several short rows.
_MOST_THREADS, _THREADS = 512, 128
#: The grid has at most this many times the blocks that the GPU holds at once; with more rows, blocks iterate.
_WAVES = 4


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Distribution of rows among threads. A group is the ``vector_elements`` elements that a thread processes at once.

    along_rows: the elements of a group belong to one row; otherwise they belong to adjacent rows.
    lanes: threads along a row (a power of two), or, if not along_rows, a warp over adjacent groups of rows.
    threads: threads of a block. groups: number of groups of a row. row_groups: number of groups of rows.
    unrolled: groups of a row whose code is unrolled. chunks: number of repetitions of the unrolled code.
    rows_per_block: groups of rows that a block processes in one round. most_blocks: largest number of blocks.
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
        """Number of elements of a group along a row."""
        return self.vector_elements if self.along_rows else 1

    @property
    def side(self) -> int:
        """Number of rows to which the elements of a group belong."""
        return 1 if self.along_rows else self.vector_elements

    @property
    def step(self) -> int:
        """Distance between the groups of a row that one thread processes, in groups."""
        return self.lanes if self.along_rows else self.threads // self.lanes

    @property
    def shares(self) -> int:
        """Number of totals of a row that are combined through shared memory; 1 if shared memory is not needed."""
        return max(1, self.lanes // WARP) if self.along_rows else self.step

    @property
    def totals_per_share(self) -> int:
        """Number of groups of rows for which each share has totals."""
        return 1 if self.along_rows else self.lanes

    @property
    def rounds(self) -> int:
        """Number of rounds that all blocks perform in total."""
        return -(-self.row_groups // self.rows_per_block)


def row_plan(parts: RowParts, target: GpuTarget, *, vectorized: bool = True) -> RowPlan:
    """Return the distribution of the rows of ``parts`` among the threads of ``target``.

    vectorized: one instruction may move elements of several rows; if it does not, more blocks share the rows.
    """
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
        most = rows // WARP if vectorized else 1
        vector_elements = _vector_elements(parts, parts.counted[-1], parts.counted_strides, most)
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


def bytes_per_block(parts: RowParts, plan: RowPlan) -> int:
    """Return how many bytes a block reads for the rows that it processes in one round."""
    items = [parts.accesses[leaf].item for leaf in _arrays(parts)]
    return sum(items) * math.prod(parts.reduced) * plan.side * plan.rows_per_block


def _lanes(groups: int, live: int) -> int:
    """Return the number of threads of a row of ``groups``. live: values of a group that a thread holds in registers.

    The number is a power of two. A thread gets at most _FEW groups, whose values fit into its registers, unless the row
    would need more than _MOST_THREADS threads.
    """
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
    """Return the number of arrays and cached values whose elements a thread holds in registers at the same time."""
    results = max((len(each.results) for each in parts.passes), default=0)
    return len(_arrays(parts)) + len(parts.fusion.cached) + results


def _arrays(parts: RowParts) -> set[int]:
    """Return the numbers of the accesses that read different elements along a row."""
    return {
        leaf
        for each in parts.passes
        for leaf in each.elements.leaves
        if isinstance(leaf, int) and any(parts.reduced_strides[leaf])
    }


def _vector_elements(
    parts: RowParts, size: int, strides: tuple[tuple[int, ...], ...], most: int
) -> int:
    """Return how many contiguous elements of the array with the smallest elements one instruction moves.

    The number divides ``size``, the innermost size. strides: of each access along the dimensions. most: limit if the
    elements of a group belong to adjacent rows.
    """
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
