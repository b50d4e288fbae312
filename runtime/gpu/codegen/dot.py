"""Matrix products in PTX: products of integers, and products too small for a library call.

s32[m,k] @ s32[k,n]           sums wrap around, as on CPUs; of integers, tensor cores multiply only s8
f32[3,2] @ f32[2,5]           a kernel of few threads

A thread computes up to 4 by 4 elements of the result. It sums each of them in ascending order of k.
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
from runtime.gpu.codegen.launch import ArgumentKind, KernelSource
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.program_builder import ProgramBuilder
from runtime.program.records.dot import DotKernel
from runtime.program.scalar_program import ScalarProgram
from spmd.hlo import Opcode

ENTRY = "spmd_dot"
#: Threads of a block, and blocks per multiprocessor.
THREADS, BLOCKS = 128, 32
#: Products whose operands have at least this many elements in all are left to a library, as in XLA:GPU.
LIBRARY_ELEMENTS = 100
#: Rows and columns of the result that a thread computes if the result is large enough to keep all threads busy.
SIDE = 4


@kernel_emitter(DotKernel)
def emit_dot(kernel: DotKernel, arrays: GpuArrays) -> Sources:
    """Return the launch of a product of integers or of a small product; None if a library should compute it."""
    elements = sum(view.num_elements for view in arrays.operands)
    if not kernel.compute.is_integer and elements >= LIBRARY_ELEMENTS:
        return None
    (result,) = arrays.results
    return () if result.num_elements == 0 else (_Product(kernel, arrays).source(),)


class _Product:
    """Writer of the kernel. ``dims`` are the sizes of the result [batch.., m, n].

    A thread computes ``side`` rows by ``side`` columns of it, which are called a square below.
    """

    def __init__(self, kernel: DotKernel, arrays: GpuArrays) -> None:
        self.kernel = kernel
        self.lhs, self.rhs = (
            array_access(ArgumentKind.OPERAND, n, x) for n, x in enumerate(arrays.operands)
        )
        (result,) = arrays.results
        self.target = array_access(ArgumentKind.RESULT, 0, result)
        self.dims = result.dims
        *batch, m, n = self.dims
        at_once = arrays.target.multiprocessors * THREADS
        is_large = math.prod(self.dims) >= SIDE * SIDE * at_once and min(m, n) >= SIDE
        self.side = SIDE if is_large else 1
        #: Numbers of squares along each dimension. Consecutive threads write adjacent elements.
        self.squares = [*batch, -(-m // self.side), -(-n // self.side)]
        strides = [abs(stride) for stride in self.target.strides]
        self.order = sorted(range(len(self.dims)), key=lambda d: -strides[d])
        self.blocks = min(
            -(-math.prod(self.squares) // THREADS), arrays.target.multiprocessors * BLOCKS
        )
        accesses = (self.lhs, self.rhs, self.target)
        longest = [*batch, max(m, kernel.k), max(n, kernel.k)]
        fits = (
            index_type(longest, accesses, [access.strides for access in accesses]) == "i32"
            and math.prod(self.dims) < 1 << 30
        )
        self.writer = ThreadWriter("i32" if fits else "i64")

    def source(self) -> KernelSource:
        writer = self.writer
        value, compute = writer.value, stored_type(self.kernel.compute)
        totals = [[value(f"alloca {compute}") for _ in self.turns] for _ in self.turns]
        bases = [begun(writer, access) for access in (self.lhs, self.rhs, self.target)]
        count = math.prod(self.squares)
        with writer.grid_stride_loop(count, self.blocks, THREADS) as number:
            found = writer.delinearize(number, [self.squares[d] for d in self.order])
            square = [found[self.order.index(d)] for d in range(len(self.dims))]
            *batch, _, _ = square
            rows, columns = (self.positions(d, square[d]) for d in (-2, -1))
            self.sums(batch, rows, columns, bases, totals)
            for row, of_row in zip(rows, totals, strict=True):
                for column, total in zip(columns, of_row, strict=True):
                    self.store([*batch, row, column], bases[2], total)
        functions = [
            *program_ir(_multiply_add(self.kernel), "multiply_add", INSTRUCTIONS),
            *program_ir(_converted(self.kernel), "converted", INSTRUCTIONS),
        ]
        return writer.source(ENTRY, functions, self.blocks, THREADS)

    @property
    def turns(self) -> range:
        return range(self.side)

    def positions(self, d: int, square: str) -> list[str]:
        """Emit the rows (d = -2) or columns (d = -1) of a thread and return their indices.

        They are as far apart as there are squares along the dimension; the last ones may be beyond the end.
        """
        t, value = self.writer.index, self.writer.value
        apart = self.squares[d]
        return [square, *(value(f"add nuw nsw {t} {square}, {n * apart}") for n in self.turns[1:])]

    def sums(
        self,
        batch: Sequence[str],
        rows: Sequence[str],
        columns: Sequence[str],
        bases: Sequence[str],
        totals: Sequence[Sequence[str]],
    ) -> None:
        """Emit the loop over k, which writes the sums for ``rows`` by ``columns`` to the addresses ``totals``."""
        writer, kernel = self.writer, self.kernel
        value, compute = writer.value, stored_type(kernel.compute)
        for total in (total for of_row in totals for total in of_row):
            writer.add(f"store {compute} zeroinitializer, ptr {total}")
        *_, m, n = self.dims
        lefts = [self.begin(self.lhs, bases[0], [*batch, self.clamped(i, m), "0"]) for i in rows]
        rights = [
            self.begin(self.rhs, bases[1], [*batch, "0", self.clamped(i, n)]) for i in columns
        ]
        program = _multiply_add(kernel)
        struct = struct_type(program)
        with writer.strided_loop("0", str(kernel.k), "1") as k:
            left = [self.load(self.lhs, at, k, self.lhs.strides[-1]) for at in lefts]
            right = [self.load(self.rhs, at, k, self.rhs.strides[-2]) for at in rights]
            for a, of_row in zip(left, totals, strict=True):
                for b, total in zip(right, of_row, strict=True):
                    old = value(f"load {compute}, ptr {total}")
                    arguments = f"{self.lhs.stored} {a}, {self.rhs.stored} {b}, {compute} {old}"
                    made = value(f"call {struct} @multiply_add({arguments})")
                    new = value(f"extractvalue {struct} {made}, 0")
                    writer.add(f"store {compute} {new}, ptr {total}")

    def clamped(self, index: str, size: int) -> str:
        """Emit the minimum of ``index`` and the last index of a dimension of ``size``, so that loads are in bounds."""
        t = self.writer.index
        if self.side == 1:
            return index
        return self.writer.value(f"call {t} @llvm.umin.{t}({t} {index}, {t} {size - 1})")

    def begin(self, access: GpuArrayAccess, base: str, indices: Sequence[str]) -> str:
        return address_at(self.writer, access, base, self.writer.way(indices, access.strides))

    def load(self, access: GpuArrayAccess, base: str, k: str, stride: int) -> str:
        at = address_at(self.writer, access, base, self.writer.way([k], [stride]))
        return self.writer.value(f"load {access.stored}, ptr {at}, align {access.item}")

    def store(self, indices: Sequence[str], base: str, total: str) -> None:
        """Emit the store of the sum at address ``total`` to the result at ``indices``, if these are in bounds."""
        writer, target, program = self.writer, self.target, _converted(self.kernel)
        value, t = writer.value, writer.index
        compute, struct = stored_type(self.kernel.compute), struct_type(program)
        is_inside = "true"
        if self.side > 1:
            row, column = (
                value(f"icmp ult {t} {i}, {size}")
                for i, size in zip(indices[-2:], self.dims[-2:], strict=True)
            )
            is_inside = value(f"and i1 {row}, {column}")
        with writer.when(is_inside):
            made = value(
                f"call {struct} @converted({compute} {value(f'load {compute}, ptr {total}')})"
            )
            element = value(f"extractvalue {struct} {made}, 0")
            at = self.begin(target, base, indices)
            writer.add(f"store {target.stored} {element}, ptr {at}, align {target.item}")


def _multiply_add(kernel: DotKernel) -> ScalarProgram:
    """Return the program (a, b, total) -> total + a * b, computed in the type of the sums."""
    compute = kernel.compute
    program = ProgramBuilder(kernel.lhs, kernel.rhs, compute)
    factors = [program.converted(n, compute) for n in range(2)]
    product = program.op(Opcode.MULTIPLY, compute, *factors)
    return program.giving(program.op(Opcode.ADD, compute, 2, product))


def _converted(kernel: DotKernel) -> ScalarProgram:
    """Return the program that converts a sum to the type of the result."""
    program = ProgramBuilder(kernel.compute)
    return program.giving(program.converted(0, kernel.result))
