"""Reductions by a scalar program on a GPU, such as argmax: lanes share a contiguous row, other rows have a thread each.

A program that computes new values, such as ``a * 0.5 + b``, need not be associative, so one thread reduces its row in
order, as XLA CPU and the evaluator do; only rows longer than ``LONGEST_SERIAL_ROW`` are shared. A program that only
selects among its arguments is associative in practice, and its rows are shared by lanes.

Each total covers consecutive elements in order, because a program need not commute (argmax returns the first of several
nan). Elements are its second arguments. A row of one lane starts from the initial values. So does each of several
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
    GpuArrayAccess,
    address_at,
    array_access,
    begun,
    index_type,
)
from runtime.gpu.codegen.emitters import GpuArrays, Sources, kernel_emitter
from runtime.gpu.codegen.launch import WARP, ArgumentKind, KernelSource
from runtime.gpu.codegen.thread_writer import PtxWriter
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.scalar_program import ScalarOp, ScalarProgram
from runtime.program.strides import merged_dims
from spmd.hlo import Opcode

#: Threads of a block of several rows, blocks per multiprocessor, and most threads of a row.
THREADS, BLOCKS, MOST_LANES = 128, 16, 256
#: Most elements of a row that one thread reduces in order, if the program may not be associative.
LONGEST_SERIAL_ROW = 4096

_SELECTIONS = {
    Opcode.COMPARE,
    Opcode.SELECT,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.AND,
    Opcode.OR,
    Opcode.NOT,
}


@kernel_emitter(ProgramReduceKernel)
def emit_program_reduce(kernel: ProgramReduceKernel, arrays: GpuArrays) -> Sources:
    if arrays.results[0].num_elements == 0:
        return ()
    return (_Reduce(kernel, arrays).source(),)


class _Reduce:
    def __init__(self, kernel: ProgramReduceKernel, arrays: GpuArrays) -> None:
        self.program, self.arrays = kernel.program, arrays
        count = len(arrays.results)
        self.accesses = [
            array_access(ArgumentKind.OPERAND, n, x) for n, x in enumerate(arrays.operands[:count])
        ]
        self.inits = [
            array_access(ArgumentKind.OPERAND, n, x)
            for n, x in enumerate(arrays.operands[count:], count)
        ]
        self.targets = [
            array_access(ArgumentKind.RESULT, n, x) for n, x in enumerate(arrays.results)
        ]
        dims = arrays.operands[0].dims
        unreduced = [d for d in range(len(dims)) if d not in kernel.axes]
        strides = [[w.strides[d] for d in unreduced] for w in self.accesses]
        strides += [list(w.strides) for w in self.targets]
        self.rows, self.row_strides = _merged([dims[d] for d in unreduced], strides)
        self.reduced, self.strides = _merged(
            [dims[d] for d in kernel.axes],
            [[w.strides[d] for d in kernel.axes] for w in self.accesses],
        )
        self.length, self.count = math.prod(self.reduced), math.prod(self.rows)
        along = any(
            own[-1] == access.item for own, access in zip(self.strides, self.accesses, strict=True)
        )
        folds = self.length <= LONGEST_SERIAL_ROW and not _selects(self.program)
        most = min(self.length, MOST_LANES) if along and not folds else 1
        self.lanes = 1 << (max(1, most).bit_length() - 1)
        self.threads = self.lanes if self.lanes > WARP else THREADS
        self.rows_per_block = self.threads // self.lanes
        self.rounds = -(-self.count // self.rows_per_block)
        self.blocks = min(self.rounds, arrays.target.multiprocessors * BLOCKS)
        every = [*self.accesses, *self.targets]
        spread = [(*a, *b) for a, b in zip(self.row_strides, self.strides, strict=False)]
        spread += [(*a, *[0] * len(self.reduced)) for a in self.row_strides[count:]]
        self.writer = PtxWriter(index=index_type([*self.rows, *self.reduced], every, spread))
        self.struct = struct_type(self.program)
        self.kinds = [stored_type(kind) for kind in self.program.parameters[:count]]

    def source(self) -> KernelSource:
        writer = self.writer
        t, value = writer.index, writer.value
        bases = [begun(writer, access) for access in (*self.accesses, *self.targets)]
        accumulators = [value(f"alloca {kind}") for kind in self.kinds]
        inits = [self.loaded(access, begun(writer, access)) for access in self.inits]
        neutral = self.is_neutral(inits)
        thread = writer.thread()
        lane = value(f"and i32 {thread}, {self.lanes - 1}")
        own = value(f"lshr i32 {thread}, {self.lanes.bit_length() - 1}")
        self.warp = value(f"lshr i32 {thread}, 5")
        block = writer.to_index(writer.block_number())
        with writer.strided_loop(block, str(self.rounds), str(self.blocks)) as number:
            before = value(f"mul nuw nsw {t} {number}, {self.rows_per_block}")
            row = value(f"add nuw nsw {t} {before}, {writer.to_index(own)}")
            there = value(f"icmp ult {t} {row}, {self.count}")
            row = value(f"select i1 {there}, {t} {row}, {t} {self.count - 1}")
            indices = writer.delinearize(row, self.rows)
            at = [
                address_at(writer, access, base, writer.way(indices, own_strides))
                for access, base, own_strides in zip(
                    (*self.accesses, *self.targets), bases, self.row_strides, strict=True
                )
            ]
            totals = inits
            if self.length:
                totals = self.total(writer.to_index(lane), at, accumulators, inits, neutral)
            if self.lanes > 1:
                totals = self.over_lanes(totals, thread)
                with_inits = self.combined(inits, totals)
                totals = self.chosen(neutral, totals, with_inits)
            first = value(f"icmp eq i32 {lane}, 0")
            with writer.when(value(f"and i1 {there}, {first}")):
                results = zip(self.targets, at[len(self.accesses) :], totals, strict=True)
                for target, address, total in results:
                    writer.add(f"store {target.stored} {total}, ptr {address}, align {target.item}")
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
        value, bits = self.writer.value, [8 * access.item for access in self.inits]
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
        accumulators: Sequence[str],
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
        for kind, accumulator, x in zip(self.kinds, accumulators, begun_with, strict=True):
            writer.add(f"store {kind} {x}, ptr {accumulator}")
        with writer.strided_loop(first, end, "1") as number:
            partial = self.loaded_totals(accumulators)
            made = self.combined(partial, self.elements(number, at))
            for kind, accumulator, x in zip(self.kinds, accumulators, made, strict=True):
                writer.add(f"store {kind} {x}, ptr {accumulator}")
        return self.loaded_totals(accumulators)

    def begin_of(self, lane: str) -> str:
        """Emit the number of the first element of a lane."""
        value, t = self.writer.value, self.writer.index
        scaled = value(f"mul nuw nsw i64 {self.writer.to_i64(lane)}, {self.length}")
        number = value(f"lshr i64 {scaled}, {self.lanes.bit_length() - 1}")
        return number if t == "i64" else value(f"trunc i64 {number} to {t}")

    def loaded_totals(self, accumulators: Sequence[str]) -> list[str]:
        return [
            self.writer.value(f"load {kind}, ptr {accumulator}")
            for kind, accumulator in zip(self.kinds, accumulators, strict=True)
        ]

    def elements(self, number: str, at: Sequence[str]) -> list[str]:
        indices = self.writer.delinearize(number, self.reduced)
        return [
            self.loaded(
                access, address_at(self.writer, access, base, self.writer.way(indices, own))
            )
            for access, base, own in zip(self.accesses, at, self.strides, strict=False)
        ]

    def loaded(self, access: GpuArrayAccess, address: str) -> str:
        return self.writer.value(f"load {access.stored}, ptr {address}, align {access.item}")

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
                writer.exchanged(kind, 8 * access.item, x, mask)
                for kind, access, x in zip(self.kinds, self.accesses, totals, strict=True)
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
        starts = [
            writer.shared(warps * access.item, max(16, access.item)) for access in self.accesses
        ]
        for kind, access, x, start in zip(self.kinds, self.accesses, totals, starts, strict=True):
            writer.store_shared(kind, x, start, access.item, self.warp)
        writer.barrier()
        total: list[str] = []
        for n in range(warps):
            own = [
                writer.load_shared(kind, start, access.item, str(n))
                for kind, access, start in zip(self.kinds, self.accesses, starts, strict=True)
            ]
            total = self.combined(total, own) if total else own
        return total


def _selects(program: ScalarProgram) -> bool:
    """Return whether the program only compares and selects among its arguments."""
    return all(
        isinstance(step, ScalarOp) and step.signature.opcode in _SELECTIONS
        for step in program.steps
    )


def _merged(
    dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    sizes, merged_strides = merged_dims(dims, strides)
    return (sizes, merged_strides) if sizes else ([1], [[0] for _ in strides])
