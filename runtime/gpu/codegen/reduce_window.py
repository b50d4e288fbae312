"""Reduce-window and select-and-scatter on a GPU. A thread computes one element of the result at a time.

The order of operations is that of the CPU kernels. The elements of a window are processed in row-major order. In
select-and-scatter a thread visits the windows that cover its element, in row-major order, and adds the values of those
that select this element.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from runtime.codegen.elements.combining import element_combining_ir
from runtime.codegen.elements.storage import stored_type, wide_type
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.ir.selection_ir import keeps_ir
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    address_at,
    array_access,
    begun,
    index_type,
)
from runtime.gpu.codegen.copy import copy_source
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import ArgumentKind, KernelSource
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.reduce import ReduceWindowKernel, SelectAndScatterKernel
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.ops.window import Window, WindowDimension

#: Threads of a block, and blocks per multiprocessor.
THREADS, BLOCKS = 128, 32
#: A window with more than LONG elements is computed on the GPU only if all windows together cover at most MOST_COVERED
#: elements. A cumulative sum covers the square of a row's length, while the host computes it in one pass.
LONG, MOST_COVERED = 1 << 10, 1 << 30


@kernel_emitter(ReduceWindowKernel)
def emit_reduce_window(kernel: ReduceWindowKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a reduce-window; None if its windows are so long that the host is faster."""
    source, init = arrays.operands
    (result,) = arrays.results
    covered = math.prod(dim.size for dim in kernel.window.dims)
    if covered > LONG and result.num_elements * covered > MOST_COVERED:
        return None
    if source.num_elements == 0 or covered == 0:
        start = array_access(ArgumentKind.OPERAND, 1, init.broadcast(result.dims, ()))
        return copy_source(
            start, array_access(ArgumentKind.RESULT, 0, result), result.dims, arrays.target
        )
    if result.num_elements == 0:
        return ()
    return (_ReduceWindow(kernel, arrays).source(),)


@kernel_emitter(SelectAndScatterKernel)
def emit_select_and_scatter(kernel: SelectAndScatterKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a select-and-scatter; None for negative low padding and base dilation."""
    if any(dim.padding_low < 0 or dim.base_dilation > 1 for dim in kernel.window.dims):
        return None
    (result,) = arrays.results
    return () if result.num_elements == 0 else (_SelectAndScatter(kernel, arrays).source(),)


class _PerElement(ABC):
    """Writer of a kernel whose threads compute one element of the result at a time."""

    entry: str

    def __init__(self, window: Window, arrays: GpuArrays) -> None:
        self.window, self.arrays = window, arrays
        self.accesses = [
            array_access(ArgumentKind.OPERAND, n, x) for n, x in enumerate(arrays.operands)
        ]
        (result,) = arrays.results
        self.target = array_access(ArgumentKind.RESULT, 0, result)
        self.dims = result.dims
        extent = [dim.size * dim.window_dilation for dim in window.dims]
        sizes = [*self.dims, *extent]
        longest = [max(n, m) for n, m in zip(self.dims, arrays.operands[0].dims, strict=True)]
        every = [
            access
            for access in (*self.accesses, self.target)
            if len(access.strides) == len(longest)
        ]
        wide = index_type(longest, every, [access.strides for access in every])
        fits = math.prod(sizes) < 1 << 30
        self.writer = ThreadWriter(index=wide if fits else "i64")
        order = sorted(range(len(self.dims)), key=lambda d: -abs(self.target.strides[d]))
        self.order = order
        total = math.prod(self.dims)
        self.total = total
        self.blocks = min(-(-total // THREADS), arrays.target.multiprocessors * BLOCKS)

    def source(self) -> KernelSource:
        writer = self.writer
        self.prepare()
        self.bases = [begun(writer, access) for access in self.accesses]
        target = begun(writer, self.target)
        with writer.grid_stride_loop(self.total, self.blocks, THREADS) as number:
            found = writer.delinearize(number, [self.dims[d] for d in self.order])
            indices = [found[self.order.index(d)] for d in range(len(self.dims))]
            result = self.element(indices)
            address = address_at(
                writer, self.target, target, writer.way(indices, self.target.strides)
            )
            writer.add(
                f"store {self.target.stored} {result}, ptr {address}, align {self.target.item}"
            )
        return writer.source(self.entry, self.functions(), self.blocks, THREADS)

    @abstractmethod
    def prepare(self) -> None:
        """Emit the allocation of stack slots, which LLVM promotes to registers."""

    @abstractmethod
    def element(self, indices: Sequence[str]) -> str:
        """Emit the computation of the result element at ``indices``, and return it in its stored type."""

    @abstractmethod
    def functions(self) -> list[str]:
        """Return the IR of the functions that the kernel calls."""

    def loaded(self, n: int, indices: Sequence[str]) -> str:
        """Emit the load of operand ``n`` at ``indices``, which are empty for a scalar."""
        access = self.accesses[n]
        way = self.writer.way(indices, access.strides) if indices else "0"
        address = address_at(self.writer, access, self.bases[n], way)
        return self.writer.value(f"load {access.stored}, ptr {address}, align {access.item}")

    @contextmanager
    def covered(
        self, window_starts: Sequence[str], base: Sequence[int]
    ) -> Iterator[tuple[str, list[str]]]:
        """Emit a loop over the elements of a window that lie in an array of sizes ``base``, in row-major order.

        The managed block emits the body of the loop. window_starts: first index of the window along each dimension,
        which may be negative. Yields the number of the element in the window, and its indices in the array.
        """
        writer, t = self.writer, self.writer.index
        value, dims = writer.value, self.window.dims
        count = math.prod(dim.size for dim in dims)
        with writer.strided_loop("0", str(count), "1") as number:
            steps = writer.delinearize(number, [dim.size for dim in dims])
            source_indices, inside = [], ""
            for dim, window_start, k, size in zip(dims, window_starts, steps, base, strict=True):
                at = window_start
                if dim.size > 1:
                    way = value(f"mul nsw {t} {k}, {dim.window_dilation}")
                    at = value(f"add nsw {t} {window_start}, {way}")
                if not _is_plain(dim):
                    extent = (size - 1) * dim.base_dilation + 1
                    conditions = [value(f"icmp ult {t} {at}, {extent}")]
                    if dim.base_dilation > 1:
                        rest = value(f"urem {t} {at}, {dim.base_dilation}")
                        conditions.append(value(f"icmp eq {t} {rest}, 0"))
                        at = value(f"udiv {t} {at}, {dim.base_dilation}")
                    for condition in conditions:
                        inside = value(f"and i1 {inside}, {condition}") if inside else condition
                source_indices.append(at)
            with ExitStack() as stack:
                if inside:
                    stack.enter_context(writer.when(inside))
                yield number, source_indices

    def window_starts(self, windows: Sequence[str]) -> list[str]:
        """Emit the first indices of window ``windows`` in the array, which are negative in the padding."""
        writer, t = self.writer, self.writer.index
        found = []
        for dim, number in zip(self.window.dims, windows, strict=True):
            at = number
            if dim.stride != 1:
                at = writer.value(f"mul nsw {t} {at}, {dim.stride}")
            if dim.padding_low:
                at = writer.value(f"sub nsw {t} {at}, {dim.padding_low}")
            found.append(at)
        return found


def _is_plain(dim: WindowDimension) -> bool:
    """Return whether, along dimension ``dim``, window w consists of element w only."""
    unmoved = dim.stride == dim.base_dilation == 1 and dim.padding_low == dim.padding_high == 0
    return dim.size == 1 and unmoved


class _ReduceWindow(_PerElement):
    entry = "spmd_reduce_window"

    def __init__(self, kernel: ReduceWindowKernel, arrays: GpuArrays) -> None:
        super().__init__(kernel.window, arrays)
        self.reduction: Reducer = kernel.reduction
        self.kind = self.target.kind
        is_program = isinstance(kernel.reduction, ScalarProgram)
        self.wide = stored_type(self.kind) if is_program else wide_type(self.kind)

    def functions(self) -> list[str]:
        if isinstance(self.reduction, ScalarProgram):
            return program_ir(self.reduction, "reducer", INSTRUCTIONS)
        return [*element_combining_ir(self.kind, self.reduction, "", INSTRUCTIONS)]

    def prepare(self) -> None:
        self.accumulator = self.writer.value(f"alloca {self.wide}")

    def element(self, indices: Sequence[str]) -> str:
        writer, wide = self.writer, self.wide
        writer.add(f"store {wide} {self.widened(self.loaded(1, ()))}, ptr {self.accumulator}")
        base = self.arrays.operands[0].dims
        with self.covered(self.window_starts(indices), base) as (_, source_indices):
            x = self.widened(self.loaded(0, source_indices))
            total = writer.value(f"load {wide}, ptr {self.accumulator}")
            writer.add(f"store {wide} {self.combined(total, x)}, ptr {self.accumulator}")
        total = writer.value(f"load {wide}, ptr {self.accumulator}")
        if isinstance(self.reduction, ScalarProgram):
            return total
        return writer.value(f"call {self.target.stored} @narrow({wide} {total})")

    def widened(self, x: str) -> str:
        if isinstance(self.reduction, ScalarProgram):
            return x
        return self.writer.value(f"call {self.wide} @widen({self.target.stored} {x})")

    def combined(self, total: str, x: str) -> str:
        value, wide = self.writer.value, self.wide
        if not isinstance(self.reduction, ScalarProgram):
            return value(f"call {wide} @combine({wide} {total}, {wide} {x})")
        struct = struct_type(self.reduction)
        both = value(f"call {struct} @reducer({wide} {total}, {wide} {x})")
        return value(f"extractvalue {struct} {both}, 0")


class _SelectAndScatter(_PerElement):
    """Writer of select-and-scatter.

    Its operands are the array to select from, the values to add (one for each window), and the initial value.
    """

    entry = "spmd_select_and_scatter"

    def __init__(self, kernel: SelectAndScatterKernel, arrays: GpuArrays) -> None:
        super().__init__(kernel.window, arrays)
        self.elements = kernel.elements
        self.wide = wide_type(kernel.elements.kind)

    def functions(self) -> list[str]:
        own, reduction = self.elements, self.elements.reduction
        return [*element_combining_ir(own.kind, reduction, "", INSTRUCTIONS), keeps_ir(own)]

    def prepare(self) -> None:
        value = self.writer.value
        self.sum, self.best = value(f"alloca {self.wide}"), value(f"alloca {self.wide}")
        self.selected = value(f"alloca {self.writer.index}")

    def element(self, indices: Sequence[str]) -> str:
        writer, wide = self.writer, self.wide
        writer.add(f"store {wide} {self.widened(self.loaded(2, ()))}, ptr {self.sum}")
        with self.covering(indices) as (windows, own):
            chosen = self.chosen(self.window_starts(windows))
            with writer.when(writer.value(f"icmp eq {writer.index} {chosen}, {own}")):
                x = self.widened(self.loaded(1, windows))
                total = writer.value(f"load {wide}, ptr {self.sum}")
                total = writer.value(f"call {wide} @combine({wide} {total}, {wide} {x})")
                writer.add(f"store {wide} {total}, ptr {self.sum}")
        total = writer.value(f"load {wide}, ptr {self.sum}")
        return writer.value(f"call {self.target.stored} @narrow({wide} {total})")

    @contextmanager
    def covering(self, indices: Sequence[str]) -> Iterator[tuple[list[str], str]]:
        """Emit a loop over the windows that cover the element at ``indices``, in row-major order.

        The managed block emits the body of the loop. Yields the indices of the window, and the number of the element in
        it.
        """
        writer, t = self.writer, self.writer.index
        value, dims = writer.value, self.window.dims
        most = [(dim.size - 1) * dim.window_dilation // dim.stride + 1 for dim in dims]
        with writer.strided_loop("0", str(math.prod(most)), "1") as number:
            turns = writer.delinearize(number, most)
            windows, own, inside = [], "0", ""
            for dim, i, turn, count, size in zip(
                dims, indices, turns, most, self.arrays.operands[1].dims, strict=True
            ):
                at = value(f"add nsw {t} {i}, {dim.padding_low}")
                last = value(f"udiv {t} {at}, {dim.stride}")
                before = value(f"sub nsw {t} {last}, {count - 1}")
                window = value(f"add nsw {t} {before}, {turn}")
                begin = value(f"mul nsw {t} {window}, {dim.stride}")
                way = value(f"sub nsw {t} {at}, {begin}")
                extent = (dim.size - 1) * dim.window_dilation + 1
                conditions = [
                    value(f"icmp ult {t} {window}, {size}"),
                    value(f"icmp ult {t} {way}, {extent}"),
                ]
                k = way
                if dim.window_dilation > 1:
                    rest = value(f"urem {t} {way}, {dim.window_dilation}")
                    conditions.append(value(f"icmp eq {t} {rest}, 0"))
                    k = value(f"udiv {t} {way}, {dim.window_dilation}")
                for condition in conditions:
                    inside = value(f"and i1 {inside}, {condition}") if inside else condition
                windows.append(window)
                scaled = value(f"mul {t} {own}, {dim.size}")
                own = value(f"add {t} {scaled}, {k}")
            with ExitStack() as stack:
                if inside:
                    stack.enter_context(writer.when(inside))
                yield windows, own

    def chosen(self, window_starts: Sequence[str]) -> str:
        """Emit the loop that finds the selected element of a window, and return the element's number in the window.

        Elements are visited in row-major order. The selected one is kept while the select function prefers it to the
        next one.
        """
        writer, t, wide = self.writer, self.writer.index, self.wide
        value = writer.value
        writer.add(f"store {t} -1, ptr {self.selected}")
        writer.add(f"store {wide} {_zero(wide)}, ptr {self.best}")
        with self.covered(window_starts, self.arrays.operands[0].dims) as (number, source_indices):
            x = self.widened(self.loaded(0, source_indices))
            best, selected = (
                value(f"load {wide}, ptr {self.best}"),
                value(f"load {t}, ptr {self.selected}"),
            )
            has_one = value(f"icmp sge {t} {selected}, 0")
            keeps = value(f"call i1 @keeps({wide} {best}, {wide} {x})")
            stays = value(f"and i1 {has_one}, {keeps}")
            best = value(f"select i1 {stays}, {wide} {best}, {wide} {x}")
            selected = value(f"select i1 {stays}, {t} {selected}, {t} {number}")
            writer.add(f"store {wide} {best}, ptr {self.best}")
            writer.add(f"store {t} {selected}, ptr {self.selected}")
        return value(f"load {t}, ptr {self.selected}")

    def widened(self, x: str) -> str:
        return self.writer.value(f"call {self.wide} @widen({self.target.stored} {x})")


def _zero(wide: str) -> str:
    return "0.0" if wide in ("float", "double") else "0"
