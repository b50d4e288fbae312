"""Native code of sort: a stable merge sort of indices by a comparator, row by row, and the copy of the elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from runtime.codegen.elements.builder import Bool, Int, IntLike
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.scalar_program_ir import program_ir
from runtime.codegen.ir.values import Pointer, indices_of
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.program.argument_record import Address, Record, Word, record, sized
from runtime.program.records.sort import RANK
from runtime.program.scalar_program import ScalarProgram
from spmd.lazy_dataclass import dataclass

FUNCTION = "spmd_sort"


@record
class SortedArray(Record):
    """Array: its address, and its strides in bytes along the other dimensions and along the sorted one."""

    address: Address
    strides: Sequence[Word] = sized("rank")
    step: Word


@record
class SortRecord(Record):
    """Record of a sort along a dimension of ``size`` elements, of which results hold the first ``count``.

    ``sizes`` are those of the RANK other dimensions, slowest first. ``one`` and ``other`` are the addresses of scratch
    arrays; for a merge sort, of ``size`` 32-bit indices. ``arrays`` are the operands, as many results, and an optional
    array of indices.
    """

    size: Word
    count: Word
    one: Address
    other: Address
    sizes: Sequence[Word] = sized("rank")
    arrays: Sequence[SortedArray]


@dataclass(frozen=True, slots=True)
class Row:
    """Row of an array along the sorted dimension, whose elements are ``step`` bytes apart."""

    first: Pointer
    step: Int

    def at(self, number: IntLike) -> Pointer:
        """Return the address of element ``number``."""
        return self.first.at(number * self.step)


def sort_function(module: Module, name: str, operands: int, with_indices: bool) -> FunctionWriter:
    """Return the writer of function ``name``, which takes a SortRecord of ``operands`` operands."""
    arrays = 2 * operands + with_indices
    return FunctionWriter(name, SortRecord, module=module, rank=RANK, arrays=arrays)


@contextmanager
def rows(f: FunctionWriter) -> Iterator[list[Row]]:
    """Repeat for each row. Yields the row of each of the record's arrays."""
    rec = f.record
    n = rec.sizes
    arrays = [(one.address, one.strides, one.step) for one in rec.arrays]
    with f.loop((n[0] * n[1]) * (n[2] * n[3])) as number:
        index, found = indices_of(number, n[1:]), []
        for address, strides, step in arrays:
            a, b, c, d = (i * stride for i, stride in zip(index, strides, strict=True))
            found.append(Row(address.at((a + b) + (c + d)), step))
        yield found


def write_results(
    f: FunctionWriter,
    arrays: Sequence[Row],
    types: Sequence[str],
    index_of: Callable[[Int], Int],
) -> None:
    """Write the results of a row.

    ``arrays`` are the rows of all arrays, and ``types`` the LLVM types of the operands. ``index_of`` returns the index
    (i32) from which the element of the sorted row with a given number comes.
    """
    count = len(types)
    with f.loop(f.record.count) as number:
        index = index_of(number)
        wide = index.resized("i64")
        for source, target, kind in zip(arrays, arrays[count:], types, strict=False):
            target.at(number).store(source.at(wide).load(kind))
        for indices in arrays[2 * count :]:
            indices.at(number).store(index)


@cache
def sort_code(comparator: ScalarProgram, with_indices: bool) -> NativeLibrary:
    """Return the library of ``FUNCTION``, a stable sort, which takes the address of a SortRecord."""
    return host_jit().compile(sort_ir(comparator, with_indices), (FUNCTION,), passes=Passes.TIDY)


def sort_ir(comparator: ScalarProgram, with_indices: bool) -> str:
    """Return the IR of ``sort_code``.

    The comparator's parameters are two elements of each operand in turn: first, second, first, second, ..
    """
    types = [stored_type(kind) for kind in comparator.parameters[::2]]
    module = Module(*program_ir(comparator, "compare"))
    f = sort_function(module, FUNCTION, len(types), with_indices)
    rec = f.record
    size, one, other = rec.size, rec.one, rec.other
    with rows(f) as arrays:
        with f.loop(size) as i:
            one.element("i32", i).store(i.resized("i32"))
        with f.repeat(1, one, other) as rounds:
            width, source, target = rounds.values
            rounds.leave(width.compared("uge", size))
            with f.repeat(0) as pairs:
                (low,) = pairs.values
                middle = (low + width).umin(size)
                high = (middle + width).umin(size)
                _merge(_Runs(f, source, low, middle, high), target, arrays, types)
                pairs.again(high, when=high.ult(size))
            rounds.again(width * 2, target, source)
        write_results(f, arrays, types, lambda o: source.element("i32", o).load("i32"))
    return f.end()


@dataclass(frozen=True, slots=True)
class _Runs:
    """Two sorted runs of the indices at ``source``: from ``low`` to ``middle``, and from there to ``high``."""

    f: FunctionWriter
    source: Pointer
    low: Int
    middle: Int
    high: Int


def _merge(runs: _Runs, target: Pointer, arrays: Sequence[Row], types: Sequence[str]) -> None:
    """Write the merge of two runs to ``target``. If elements are equal, those of the left run come first."""
    f = runs.f
    with f.repeat(runs.low, runs.middle, runs.low) as merge:
        left, right, k = merge.values
        left_at, right_at = (runs.source.element("i32", i) for i in (left, right))
        with f.when(right.ult(runs.high)) as has_right:
            with f.when(left.ult(runs.middle)) as has_left:
                one, other = left_at.load("i32"), right_at.load("i32")
                right_precedes = _precedes(f, arrays, types, other, one)
            right_first = has_left.merged(right_precedes, f.true())
        from_right = has_right.merged(right_first, f.false())
        with f.when(from_right) as taking:
            right_index, after_right = right_at.load("i32"), right + 1
            taking.otherwise()
            left_index, after_left = left_at.load("i32"), left + 1
        taken = taking.merged(right_index, left_index)
        next_left, next_right = taking.merged(left, after_left), taking.merged(after_right, right)
        target.element("i32", k).store(taken)
        next_k = k + 1
        merge.again(next_left, next_right, next_k, when=next_k.ult(runs.high))


def _precedes(
    f: FunctionWriter, arrays: Sequence[Row], types: Sequence[str], first: Int, second: Int
) -> Bool:
    """Return whether the elements at index ``first`` precede those at ``second``."""
    indices = first.resized("i64"), second.resized("i64")
    elements = [
        row.at(index).load(kind)
        for row, kind in zip(arrays, types, strict=False)
        for index in indices
    ]
    (answer,) = f.results("{ i8 }", 1, "compare", *elements)
    return Bool(f, answer.differs(0).name)
