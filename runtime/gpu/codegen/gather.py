"""Gather on a GPU, and addresses of windows of an array whose positions are computed from elements, also for scatter.

Each thread of a gather computes groups of elements of the result, and for each group the start of its window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.dynamic_starts import inside
from runtime.codegen.ir.index_vectors import index_functions, index_vector
from runtime.codegen.ir.values import typed
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    GpuArrayAccess,
    address_at,
    array_access,
    begun,
    index_type,
    leaf_access,
    load,
    piece,
    store,
)
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import ArgumentKind, GpuTarget, KernelSource
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.gather_scatter import GatherKernel, IndexedWindows
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView, merged_dims
from spmd.lazy_dataclass import dataclass

#: Threads of a block, and blocks per multiprocessor.
THREADS, BLOCKS = 128, 16
#: Most bytes that one load or store instruction moves.
_WIDEST = 16


@dataclass(frozen=True, slots=True)
class _Space:
    """Sizes of some dimensions, with their strides in bytes in the array, the slices and each leaf."""

    sizes: tuple[int, ...]
    array: tuple[int, ...]
    slices: tuple[int, ...]
    leaves: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of a gather or scatter, with merged dimensions.

    array: the array that contains the windows: operand of a gather, result of a scatter. slices: the windows side by
    side: result of a gather, updates of a scatter. leaves: elements from which ``program`` computes an index vector.
    batch: dimensions that number the windows. window: dimensions of a window. components: for each indexed dimension
    (stride in the array in bytes, largest start).
    """

    array: GpuArrayAccess
    slices: GpuArrayAccess
    leaves: tuple[GpuArrayAccess, ...]
    program: ScalarProgram
    batch: _Space
    window: _Space
    components: tuple[tuple[int, int], ...]

    @property
    def index(self) -> str:
        """LLVM type for indices: i32 or i64."""
        batch, window = self.batch, self.window
        strides = [(*batch.array, *window.array), (*batch.slices, *window.slices)]
        strides += [(*b, *w) for b, w in zip(batch.leaves, window.leaves, strict=True)]
        accesses = (self.array, self.slices, *self.leaves)
        return index_type((*batch.sizes, *window.sizes), accesses, strides)

    def vector_elements(self) -> int:
        """Return the number of contiguous elements of a window that a thread processes at once.

        It divides the size of the last window dimension. It is 1 if elements along it are not contiguous.
        """
        item, size = self.slices.item, self.window.sizes[-1]
        if (self.window.array[-1], self.window.slices[-1]) != (self.array.item, item):
            return 1
        count = max(1, min(8, _WIDEST // item))
        while size % count:
            count //= 2
        return count

    def pieces(self, count: int) -> tuple[int, int]:
        """Return how many of ``count`` contiguous elements one instruction moves, in the array and in the slices."""
        moves = [stride for stride, _ in self.components]
        array = (*moves, *self.batch.array, *self.window.array)
        slices = (*self.batch.slices, *self.window.slices)
        return piece(self.array, array, count), piece(self.slices, slices, count)


def windows_of(
    windows: IndexedWindows,
    array: GpuArrayAccess,
    slices: GpuArrayAccess,
    operands: Sequence[StridedView],
    dims: Sequence[int],
) -> Windows:
    """Return ``windows`` with merged dimensions. dims: sizes of the array of slices."""
    accesses = tuple(leaf_access(leaf, operands) for leaf in windows.leaves)
    batch = [
        (
            dims[n],
            0 if f is None else array.strides[f],
            slices.strides[n],
            *(access.strides[k] for access in accesses),
        )
        for k, (n, f) in enumerate(windows.batch)
    ]
    still = (0,) * len(accesses)
    window = [(dims[n], array.strides[f], slices.strides[n], *still) for n, f in windows.window]
    window.sort(key=lambda dimension: -abs(dimension[2]))
    return Windows(
        array,
        slices,
        accesses,
        windows.indices,
        _space(batch, len(accesses)),
        _space(window, len(accesses)),
        tuple((array.strides[d], limit) for d, limit in windows.starts),
    )


def _space(dimensions: Sequence[tuple[int, ...]], leaves: int) -> _Space:
    """Return the space of ``dimensions``, merged. Each is (size, strides in array, slices and ``leaves`` leaves)."""
    sizes, strides = merged_dims(
        [d[0] for d in dimensions], [[d[k] for d in dimensions] for k in range(1, 3 + leaves)]
    )
    if not sizes:
        return _Space((1,), (0,), (0,), ((0,),) * leaves)
    array, slices, *others = (tuple(own) for own in strides)
    return _Space(tuple(sizes), array, slices, tuple(others))


class WindowWriter:
    """Base of the writers of gather and scatter: emits the addresses of windows."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.writer = ThreadWriter(index=windows.index)

    def begin(self) -> None:
        """Emit the base addresses of the arrays."""
        windows, writer = self.windows, self.writer
        self.array, self.slices, *self.leaves = (
            begun(writer, access) for access in (windows.array, windows.slices, *windows.leaves)
        )

    def functions(self) -> list[str]:
        """Return the functions that ``starts`` calls."""
        return index_functions(self.windows.program, INSTRUCTIONS)

    def starts(self, batch: Sequence[str]) -> list[str]:
        """Emit the computation of the index vector of window ``batch`` and return its components as i64."""
        windows, writer = self.windows, self.writer
        elements = []
        leaves = zip(windows.leaves, windows.batch.leaves, self.leaves, strict=True)
        for access, strides, base in leaves:
            at = address_at(writer, access, base, writer.way(batch, strides))
            element = writer.value(f"load {access.stored}, ptr {at}, align {access.item}")
            elements.append(typed(writer, access.stored, element))
        return [start.name for start in index_vector(writer, windows.program, elements)]

    def moved(self, address: str, starts: Sequence[str]) -> str:
        """Emit ``address`` in the array, moved to a window that begins at ``starts``."""
        for start, (stride, _) in zip(starts, self.windows.components, strict=True):
            way = self.writer.value(f"mul i64 {start}, {stride}")
            address = self.writer.value(f"getelementptr i8, ptr {address}, i64 {way}")
        return address

    def at(self, side: str, batch: Sequence[str], window: Sequence[str], count: int) -> str:
        """Emit the address of an element in the "array" or in the "slices" (``side``), before it is moved to a window.

        batch: indices of the window. window: indices in the window, the last one in units of ``count`` elements.
        """
        windows, writer = self.windows, self.writer
        access, address = getattr(windows, side), getattr(self, side)
        *outer, last = getattr(windows.window, side)
        ways = (
            writer.way(batch, getattr(windows.batch, side)),
            writer.way(window, (*outer, last * count)),
        )
        for way in ways:
            address = address_at(writer, access, address, way)
        return str(address)


# ---- gather
@kernel_emitter(GatherKernel)
def emit_gather(kernel: GatherKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a gather, or no launch if the result is empty."""
    (result,) = arrays.results
    if result.num_elements == 0:
        return ()
    number = kernel.windows.array
    array = array_access(ArgumentKind.OPERAND, number, arrays.operands[number])
    slices = array_access(ArgumentKind.RESULT, 0, result)
    windows = windows_of(kernel.windows, array, slices, arrays.operands, result.dims)
    return (_Gather(windows, arrays.target).source(),)


class _Gather(WindowWriter):
    def __init__(self, windows: Windows, target: GpuTarget) -> None:
        super().__init__(windows)
        self.count = windows.vector_elements()
        *outer, last = windows.window.sizes
        self.sizes = [*windows.batch.sizes, *outer, last // self.count]
        self.total = math.prod(self.sizes)
        self.blocks = min(-(-self.total // THREADS), target.multiprocessors * 2 * BLOCKS)

    def source(self) -> KernelSource:
        writer, windows = self.writer, self.windows
        self.begin()
        with writer.grid_stride_loop(self.total, self.blocks, THREADS) as number:
            indices = writer.delinearize(number, self.sizes)
            rank = len(windows.batch.sizes)
            batch, window = indices[:rank], indices[rank:]
            starts = [
                inside(Int(writer, "i64", start), limit).name
                for start, (_, limit) in zip(self.starts(batch), windows.components, strict=True)
            ]
            source = self.moved(self.at("array", batch, window, self.count), starts)
            target = self.at("slices", batch, window, self.count)
            pieces = windows.pieces(self.count)
            steps = windows.window.array[-1], windows.window.slices[-1]
            elements = load(writer, windows.array, source, steps[0], self.count, pieces[0])
            store(writer, windows.slices, target, steps[1], elements, pieces[1])
        return writer.source("spmd_gather", self.functions(), self.blocks, THREADS)
