"""Reductions by a scalar program on a GPU, such as argmax. A row consists of the elements of one result element.

One thread, or several lanes, reduce a row. A program that only selects among its arguments is treated as associative:
lanes divide its rows if these are contiguous. A program that computes new values, such as ``a * 0.5 + b``, need not be
associative: one thread reduces its row in order, as XLA CPU and the evaluator do, unless the row is longer than
``LONGEST_SERIAL_ROW``.

A program need not be commutative (argmax returns the first of several nan). So each lane reduces consecutive elements
in ascending order, which are the second arguments of the program, and totals of lanes are combined in ascending order.
A single lane starts with the initial values. Several lanes start with them if the program maps the initial values,
combined with themselves, to themselves. Otherwise each lane starts with its first element (there are no more lanes than
elements), and the initial values are combined once with the total. The order depends only on sizes and layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.elements.storage import stored_type
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
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.scalar_program import ScalarOp, ScalarProgram
from runtime.program.strides import merged_dims
from spmd.hlo import Opcode

#: Threads of a block that reduces several rows, blocks per multiprocessor, and most lanes of a row.
THREADS, BLOCKS, MOST_LANES = 128, 16, 256
#: Longest row that one thread reduces in order if the program may not be associative.
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
    """Return the launch of a reduction by a scalar program, or no launch if the results are empty."""
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
        self.writer = ThreadWriter(index=index_type([*self.rows, *self.reduced], every, spread))
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
        """Emit the test of whether lanes start with the initial values ``inits``, and return it (i1).

        A single lane does. Several lanes do if the initial values, combined with themselves, are unchanged bit for bit.
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
        """Emit the selection of ``these`` if ``which`` (i1) is true, else of ``those``."""
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
        """Emit the loop over the consecutive elements of a lane, at least one, and return their totals.

        at: addresses of the row in each operand. accumulators: stack addresses of totals. neutral (i1): the totals
        start with ``inits``, else with the first element.
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
        """Emit the number of the first element of ``lane`` in its row."""
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
        """Emit loads of element ``number`` of the row at addresses ``at``, one of each operand."""
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
        """Emit the call of the program with totals ``a`` and totals or elements ``b``."""
        value = self.writer.value
        typed = [f"{kind} {x}" for kind, x in zip([*self.kinds] * 2, [*a, *b], strict=True)]
        made = value(f"call {self.struct} @reducer({', '.join(typed)})")
        return [value(f"extractvalue {self.struct} {made}, {n}") for n in range(len(self.kinds))]

    # ---- lanes
    def over_lanes(self, totals: list[str], thread: str) -> list[str]:
        """Emit the combination of the totals of all lanes of a row, in ascending order of lanes.

        Only the first lane has a valid result.
        """
        writer = self.writer
        mask = 1
        while mask < min(self.lanes, WARP):
            bit = writer.value(f"and i32 {thread}, {mask}")
            upper = writer.value(f"icmp ne i32 {bit}, 0")
            others = [
                writer.exchanged(kind, 8 * access.item, x, mask)
                for kind, access, x in zip(self.kinds, self.accesses, totals, strict=True)
            ]
            low, high = self.chosen(upper, others, totals), self.chosen(upper, totals, others)
            totals = self.combined(low, high)
            mask *= 2
        return self.over_warps(totals) if self.lanes > WARP else totals

    def over_warps(self, totals: list[str]) -> list[str]:
        """Emit the combination of the totals of all warps of a row, in ascending order, through shared memory."""
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
    """Return whether ``program`` only compares its arguments and selects among them."""
    return all(
        isinstance(step, ScalarOp) and step.signature.opcode in _SELECTIONS
        for step in program.steps
    )


def _merged(
    dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    sizes, merged_strides = merged_dims(dims, strides)
    return (sizes, merged_strides) if sizes else ([1], [[0] for _ in strides])
