"""Reductions by a scalar program on a GPU, such as argmax: lanes share a contiguous row, other rows have a thread each.

A program that computes new values, such as ``a * 0.5 + b``, need not be associative, so one thread folds its row in
order, as XLA CPU and the evaluator do; only rows longer than ``LONGEST_FOLD`` are shared. A program that only selects
among its arguments is associative in practice, and its rows are shared by lanes.

Each total covers consecutive elements in order, because a program need not commute (argmax returns the first of several
nan). Elements are its second arguments. A row of one lane is folded from the initial values. So is each of several
lanes if the initial values combine to themselves; otherwise a lane begins with its first element, since initial values
may count once only: there are no more lanes than elements. The order depends on the sizes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    GpuWalk,
    array_walk,
    begun,
    index_type,
    place_at,
)
from runtime.gpu.codegen.emitters import GpuArrays, Sources, gpu_form
from runtime.gpu.codegen.launch import WARP, Held, KernelSource
from runtime.gpu.codegen.thread_writer import PtxWriter
from runtime.program.index_order import merged_dims
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.scalar_program import ScalarOp, ScalarProgram
from spmd.hlo import Opcode

#: Threads of a block of several rows, blocks per multiprocessor, and most threads of a row.
THREADS, BLOCKS, MOST_LANES = 128, 16, 256
#: Most elements of a row that one thread folds in order, if the program may not be associative.
LONGEST_FOLD = 4096

_SELECTIONS = {
    Opcode.COMPARE,
    Opcode.SELECT,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.AND,
    Opcode.OR,
    Opcode.NOT,
}


@gpu_form(ProgramReduceKernel)
def program_reduce_form(kernel: ProgramReduceKernel, arrays: GpuArrays) -> Sources:
    if arrays.results[0].num_elements == 0:
        return ()
    return (_Reduce(kernel, arrays).source(),)


class _Reduce:
    def __init__(self, kernel: ProgramReduceKernel, arrays: GpuArrays) -> None:
        self.program, self.arrays = kernel.program, arrays
        count = len(arrays.results)
        self.walks = [array_walk(Held.OPERAND, n, x) for n, x in enumerate(arrays.operands[:count])]
        self.inits = [
            array_walk(Held.OPERAND, n, x) for n, x in enumerate(arrays.operands[count:], count)
        ]
        self.targets = [array_walk(Held.RESULT, n, x) for n, x in enumerate(arrays.results)]
        dims = arrays.operands[0].dims
        kept = [d for d in range(len(dims)) if d not in kernel.axes]
        strides = [[w.strides[d] for d in kept] for w in self.walks]
        strides += [list(w.strides) for w in self.targets]
        self.rows, self.row_strides = _merged([dims[d] for d in kept], strides)
        self.reduced, self.strides = _merged(
            [dims[d] for d in kernel.axes],
            [[w.strides[d] for d in kernel.axes] for w in self.walks],
        )
        self.length, self.count = math.prod(self.reduced), math.prod(self.rows)
        along = any(
            own[-1] == walk.item for own, walk in zip(self.strides, self.walks, strict=True)
        )
        folds = self.length <= LONGEST_FOLD and not _selects(self.program)
        most = min(self.length, MOST_LANES) if along and not folds else 1
        self.lanes = 1 << (max(1, most).bit_length() - 1)
        self.threads = self.lanes if self.lanes > WARP else THREADS
        self.together = self.threads // self.lanes
        self.rounds = -(-self.count // self.together)
        self.blocks = min(self.rounds, arrays.target.multiprocessors * BLOCKS)
        every = [*self.walks, *self.targets]
        spread = [(*a, *b) for a, b in zip(self.row_strides, self.strides, strict=False)]
        spread += [(*a, *[0] * len(self.reduced)) for a in self.row_strides[count:]]
        self.writer = PtxWriter(index=index_type([*self.rows, *self.reduced], every, spread))
        self.struct = struct_type(self.program)
        self.kinds = [stored_type(kind) for kind in self.program.parameters[:count]]

    def source(self) -> KernelSource:
        writer = self.writer
        t, value = writer.index, writer.value
        bases = [begun(writer, walk) for walk in (*self.walks, *self.targets)]
        places = [value(f"alloca {kind}") for kind in self.kinds]
        inits = [self.loaded(walk, begun(writer, walk)) for walk in self.inits]
        neutral = self.is_neutral(inits)
        thread = writer.thread()
        lane = value(f"and i32 {thread}, {self.lanes - 1}")
        own = value(f"lshr i32 {thread}, {self.lanes.bit_length() - 1}")
        self.warp = value(f"lshr i32 {thread}, 5")
        block = writer.to_index(writer.block_number())
        with writer.strided_loop(block, str(self.rounds), str(self.blocks)) as number:
            before = value(f"mul nuw nsw {t} {number}, {self.together}")
            row = value(f"add nuw nsw {t} {before}, {writer.to_index(own)}")
            there = value(f"icmp ult {t} {row}, {self.count}")
            row = value(f"select i1 {there}, {t} {row}, {t} {self.count - 1}")
            digits = writer.digits(row, self.rows)
            at = [
                place_at(writer, walk, base, writer.way(digits, own_strides))
                for walk, base, own_strides in zip(
                    (*self.walks, *self.targets), bases, self.row_strides, strict=True
                )
            ]
            totals = inits
            if self.length:
                totals = self.total(writer.to_index(lane), at, places, inits, neutral)
            if self.lanes > 1:
                totals = self.over_lanes(totals, thread)
                whole = self.combined(inits, totals)
                totals = self.chosen(neutral, totals, whole)
            first = value(f"icmp eq i32 {lane}, 0")
            with writer.when(value(f"and i1 {there}, {first}")):
                results = zip(self.targets, at[len(self.walks) :], totals, strict=True)
                for target, place, total in results:
                    writer.add(f"store {target.stored} {total}, ptr {place}, align {target.item}")
            if self.writer.shared_bytes:
                writer.barrier()
        functions = program_ir(self.program, "reducer", INSTRUCTIONS)
        return writer.source("spmd_reduce", functions, self.blocks, self.threads)

    def is_neutral(self, inits: Sequence[str]) -> str:
        """Return an i1 that says whether lanes begin with the initial values.

        One lane does, several do where these values combine to themselves.
        """
        if self.lanes == 1:
            return "true"
        value, bits = self.writer.value, [8 * walk.item for walk in self.inits]
        made, same = self.combined(inits, inits), "true"
        for kind, n, x, y in zip(self.kinds, bits, inits, made, strict=True):
            a, b = (value(f"bitcast {kind} {v} to i{n}") for v in (x, y))
            same = value(f"and i1 {same}, {value(f'icmp eq i{n} {a}, {b}')}")
        return same

    def chosen(self, which: str, these: Sequence[str], those: Sequence[str]) -> list[str]:
        return [
            self.writer.value(f"select i1 {which}, {kind} {x}, {kind} {y}")
            for kind, x, y in zip(self.kinds, these, those, strict=True)
        ]

    def total(
        self,
        lane: str,
        at: Sequence[str],
        places: Sequence[str],
        inits: Sequence[str],
        neutral: str,
    ) -> list[str]:
        """Return the total of the lane's elements, at least one, which follow on one another.

        It starts from the initial values if ``neutral``, else from the first element.
        """
        writer, value = self.writer, self.writer.value
        next_lane = value(f"add nuw nsw {writer.index} {lane}, 1")
        first, end = self.begin_of(lane), self.begin_of(next_lane)
        begun_with = inits
        if self.lanes > 1:
            second = value(f"add nuw nsw {writer.index} {first}, 1")
            begun_with = self.chosen(neutral, inits, self.elements(first, at))
            first = value(f"select i1 {neutral}, {writer.index} {first}, {writer.index} {second}")
        for kind, place, x in zip(self.kinds, places, begun_with, strict=True):
            writer.add(f"store {kind} {x}, ptr {place}")
        with writer.strided_loop(first, end, "1") as number:
            so_far = self.kept(places)
            made = self.combined(so_far, self.elements(number, at))
            for kind, place, x in zip(self.kinds, places, made, strict=True):
                writer.add(f"store {kind} {x}, ptr {place}")
        return self.kept(places)

    def begin_of(self, lane: str) -> str:
        """Emit the number of the first element of a lane."""
        value, t = self.writer.value, self.writer.index
        whole = value(f"mul nuw nsw i64 {self.writer.to_i64(lane)}, {self.length}")
        number = value(f"lshr i64 {whole}, {self.lanes.bit_length() - 1}")
        return number if t == "i64" else value(f"trunc i64 {number} to {t}")

    def kept(self, places: Sequence[str]) -> list[str]:
        return [
            self.writer.value(f"load {kind}, ptr {place}")
            for kind, place in zip(self.kinds, places, strict=True)
        ]

    def elements(self, number: str, at: Sequence[str]) -> list[str]:
        digits = self.writer.digits(number, self.reduced)
        return [
            self.loaded(walk, place_at(self.writer, walk, place, self.writer.way(digits, own)))
            for walk, place, own in zip(self.walks, at, self.strides, strict=False)
        ]

    def loaded(self, walk: GpuWalk, place: str) -> str:
        return self.writer.value(f"load {walk.stored}, ptr {place}, align {walk.item}")

    def combined(self, a: Sequence[str], b: Sequence[str]) -> list[str]:
        value = self.writer.value
        typed = [f"{kind} {x}" for kind, x in zip([*self.kinds] * 2, [*a, *b], strict=True)]
        made = value(f"call {self.struct} @reducer({', '.join(typed)})")
        return [value(f"extractvalue {self.struct} {made}, {n}") for n in range(len(self.kinds))]

    # ---- lanes
    def over_lanes(self, totals: list[str], thread: str) -> list[str]:
        """Combine the totals of all lanes of a row, lower ones first; only the first lane's result is valid."""
        writer = self.writer
        mask = 1
        while mask < min(self.lanes, WARP):
            bit = writer.value(f"and i32 {thread}, {mask}")
            upper = writer.value(f"icmp ne i32 {bit}, 0")
            others = [
                writer.exchanged(kind, 8 * walk.item, x, mask)
                for kind, walk, x in zip(self.kinds, self.walks, totals, strict=True)
            ]
            low, high = [], []
            for kind, x, y in zip(self.kinds, totals, others, strict=True):
                low.append(writer.value(f"select i1 {upper}, {kind} {y}, {kind} {x}"))
                high.append(writer.value(f"select i1 {upper}, {kind} {x}, {kind} {y}"))
            totals = self.combined(low, high)
            mask *= 2
        return self.over_warps(totals) if self.lanes > WARP else totals

    def over_warps(self, totals: list[str]) -> list[str]:
        writer, warps = self.writer, self.lanes // WARP
        starts = [writer.shared(warps * walk.item, max(16, walk.item)) for walk in self.walks]
        for kind, walk, x, start in zip(self.kinds, self.walks, totals, starts, strict=True):
            writer.store_shared(kind, x, start, walk.item, self.warp)
        writer.barrier()
        whole: list[str] = []
        for n in range(warps):
            own = [
                writer.load_shared(kind, start, walk.item, str(n))
                for kind, walk, start in zip(self.kinds, self.walks, starts, strict=True)
            ]
            whole = self.combined(whole, own) if whole else own
        return whole


def _selects(program: ScalarProgram) -> bool:
    """Return whether the program only compares and selects among its arguments."""
    return all(
        isinstance(step, ScalarOp) and step.signature.opcode in _SELECTIONS
        for step in program.steps
    )


def _merged(
    dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    sizes, kept = merged_dims(dims, strides)
    return (sizes, kept) if sizes else ([1], [[0] for _ in strides])
