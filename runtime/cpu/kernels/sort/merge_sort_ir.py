"""Native code of sort: a merge sort of places by a comparator, row by row, then the elements in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.record_words import OFFSET, RANK, WORDS, digits, offset
from runtime.codegen.ir.scalar_program_ir import program_ir
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.scalar_program import ScalarProgram

FUNCTION = "spmd_sort"

#: (address, strides in bytes along the other dimensions, and along the sorted one)
SortedArray: TypeAlias = tuple[int, Sequence[int], int]


@dataclass(frozen=True, slots=True)
class SortWords:
    """``sizes`` of the other dimensions, the slowest first; ``size`` of the sorted one, of whose order the results hold
    the first ``count``. scratch: two arrays; of ``size`` 32-bit places in a merge sort. results: one for each operand,
    then perhaps one for the places.
    """

    sizes: Sequence[int]
    size: int
    count: int
    scratch: tuple[int, int]
    operands: Sequence[SortedArray]
    results: Sequence[SortedArray]

    def packed(self) -> list[int]:
        missing = RANK - len(self.sizes)
        words = [self.size, self.count, *self.scratch, *[1] * missing, *self.sizes]
        for address, strides, step in (*self.operands, *self.results):
            words += [address, *[0] * missing, *strides, step]
        return words


@cache
def sort_code(comparator: ScalarProgram, with_places: bool) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words. Stable: places of equals keep their order."""
    ir = sort_ir(comparator, with_places)
    return host_jit().compile(ir, (FUNCTION,))


def sort_ir(comparator: ScalarProgram, with_places: bool) -> str:
    """The comparator takes two elements of each operand: first, second, first, second, ..."""
    types = [stored_type(kind) for kind in comparator.parameters[::2]]
    count = len(types)
    bases = ", ".join(f"ptr %x{i}, i64 %x{i}_step" for i in range(count))
    loads, arguments = [], []
    for i, kind in enumerate(types):
        for side in ("l", "r"):
            loads += [
                f"  %{side}{i}_way = mul i64 %{side}_wide, %x{i}_step",
                f"  %{side}{i}_at = getelementptr i8, ptr %x{i}, i64 %{side}{i}_way",
                f"  %{side}{i} = load {kind}, ptr %{side}{i}_at",
            ]
            arguments.append(f"{kind} %{side}{i}")
    return "\n".join(
        [
            WORDS,
            OFFSET,
            *dict.fromkeys(program_ir(comparator, "compare")),
            f"define internal i1 @precedes({bases}, i32 %l, i32 %r) alwaysinline {{",
            "  %l_wide = zext i32 %l to i64",
            "  %r_wide = zext i32 %r to i64",
            *loads,
            f"  %answer = call {{ i8 }} @compare({', '.join(arguments)})",
            "  %byte = extractvalue { i8 } %answer, 0",
            "  %yes = icmp ne i8 %byte, 0",
            "  ret i1 %yes\n}",
            _DECLARATION,
            rows_ir(
                FUNCTION,
                count,
                with_places,
                _SORT.format(
                    bases=bases,
                    output=output_ir("round", place_ir("source"), types, with_places),
                ),
            ),
        ]
    )


def rows_ir(
    name: str,
    count: int,
    with_places: bool,
    row: str,
    scratch: tuple[str, str] = ("one", "other"),
    before: str = "",
) -> str:
    """Function ``name`` of SortWords of ``count`` operands: blocks ``row`` for each row, which end in %row_done.

    They find %size, %count, the scratch arrays under the names ``scratch``, and the row itself in the operands %x0..,
    the results %y0.. and %places: each and its %.._step. before: lines in front of all rows.
    """
    return _ROWS.format(
        name=name,
        one=scratch[0],
        other=scratch[1],
        before=before,
        digits=digits("d", "%row_number", [f"%n{d}" for d in range(RANK)]),
        rows=_found_rows(count, with_places),
        row=row,
    )


def _found_rows(count: int, with_places: bool) -> str:
    names = [f"x{i}" for i in range(count)] + [f"y{i}" for i in range(count)]
    names += ["places"] if with_places else []
    first = 4 + RANK
    return "\n".join(
        line for i, name in enumerate(names) for line in _row_of(name, first + i * (RANK + 2))
    )


def place_ir(places: str, element: str = "i32", align: str = "") -> str:
    """Lines that make %place: the first 32 bits of element %o of %{places}."""
    return (
        f"  %place_at = getelementptr {element}, ptr %{places}, i64 %o\n"
        f"  %place = load i32, ptr %place_at{align}"
    )


def output_ir(come_from: str, place: str, types: Sequence[str], with_places: bool) -> str:
    """The end of a row: block %output, and from block ``come_from`` into it, writes ``count`` elements of the results.

    place: as of ``place_ir``.
    """
    return _OUTPUT.format(come_from=come_from, place=place, moves=_moves(types, with_places))


def _moves(types: Sequence[str], with_places: bool) -> str:
    """Lines that write element %place (i32, %place_wide as i64) of each operand as element %o of its result."""
    moves = []
    for i, kind in enumerate(types):
        moves += [
            f"  %from{i}_way = mul i64 %place_wide, %x{i}_step",
            f"  %from{i} = getelementptr i8, ptr %x{i}, i64 %from{i}_way",
            f"  %value{i} = load {kind}, ptr %from{i}",
            f"  %to{i}_way = mul i64 %o, %y{i}_step",
            f"  %to{i} = getelementptr i8, ptr %y{i}, i64 %to{i}_way",
            f"  store {kind} %value{i}, ptr %to{i}",
        ]
    if with_places:
        moves += [
            "  %number_way = mul i64 %o, %places_step",
            "  %number_to = getelementptr i8, ptr %places, i64 %number_way",
            "  store i32 %place, ptr %number_to",
        ]
    return "\n".join(moves)


def _row_of(name: str, word: int) -> list[str]:
    """%name and %name_step: where the row begins in an array whose words begin at ``word``."""
    return [
        f"  %{name}_base = call ptr @pointer(ptr %record, i64 {word})",
        f"  %{name}_step = call i64 @word(ptr %record, i64 {word + 1 + RANK})",
        offset(f"{name}_way", "d", word + 1),
        f"  %{name} = getelementptr i8, ptr %{name}_base, i64 %{name}_way",
    ]


_DECLARATION = "\ndeclare i64 @llvm.umin.i64(i64, i64)"

_SORT = """  br label %number
number:
  %i = phi i64 [ 0, %row ], [ %next_i, %number ]
  %i_at = getelementptr i32, ptr %one, i64 %i
  %i_narrow = trunc i64 %i to i32
  store i32 %i_narrow, ptr %i_at
  %next_i = add i64 %i, 1
  %more_i = icmp ult i64 %next_i, %size
  br i1 %more_i, label %number, label %round
round:
  %width = phi i64 [ 1, %number ], [ %wider, %round_done ]
  %source = phi ptr [ %one, %number ], [ %target, %round_done ]
  %target = phi ptr [ %other, %number ], [ %source, %round_done ]
  %unsorted = icmp ult i64 %width, %size
  br i1 %unsorted, label %pair, label %output
pair:
  %low = phi i64 [ 0, %round ], [ %high, %pair_done ]
  %low_end = add i64 %low, %width
  %middle = call i64 @llvm.umin.i64(i64 %low_end, i64 %size)
  %middle_end = add i64 %middle, %width
  %high = call i64 @llvm.umin.i64(i64 %middle_end, i64 %size)
  br label %merge
merge:
  %left = phi i64 [ %low, %pair ], [ %next_left, %place_done ]
  %right = phi i64 [ %middle, %pair ], [ %next_right, %place_done ]
  %k = phi i64 [ %low, %pair ], [ %next_k, %place_done ]
  %left_at = getelementptr i32, ptr %source, i64 %left
  %right_at = getelementptr i32, ptr %source, i64 %right
  %has_right = icmp ult i64 %right, %high
  br i1 %has_right, label %look_left, label %take_left
look_left:
  %has_left = icmp ult i64 %left, %middle
  br i1 %has_left, label %both, label %take_right
both:
  %l = load i32, ptr %left_at
  %r = load i32, ptr %right_at
  %right_first = call i1 @precedes({bases}, i32 %r, i32 %l)
  br i1 %right_first, label %take_right, label %take_left
take_left:
  %left_place = load i32, ptr %left_at
  %after_left = add i64 %left, 1
  br label %place_done
take_right:
  %right_place = load i32, ptr %right_at
  %after_right = add i64 %right, 1
  br label %place_done
place_done:
  %taken = phi i32 [ %left_place, %take_left ], [ %right_place, %take_right ]
  %next_left = phi i64 [ %after_left, %take_left ], [ %left, %take_right ]
  %next_right = phi i64 [ %right, %take_left ], [ %after_right, %take_right ]
  %taken_at = getelementptr i32, ptr %target, i64 %k
  store i32 %taken, ptr %taken_at
  %next_k = add i64 %k, 1
  %more_k = icmp ult i64 %next_k, %high
  br i1 %more_k, label %merge, label %pair_done
pair_done:
  %more_pairs = icmp ult i64 %high, %size
  br i1 %more_pairs, label %pair, label %round_done
round_done:
  %wider = mul i64 %width, 2
  br label %round
{output}"""

_ROWS = """
define void @{name}(ptr %record) {{
entry:
  %size = call i64 @word(ptr %record, i64 0)
  %count = call i64 @word(ptr %record, i64 1)
  %{one} = call ptr @pointer(ptr %record, i64 2)
  %{other} = call ptr @pointer(ptr %record, i64 3)
  %n0 = call i64 @word(ptr %record, i64 4)
  %n1 = call i64 @word(ptr %record, i64 5)
  %n2 = call i64 @word(ptr %record, i64 6)
  %n3 = call i64 @word(ptr %record, i64 7)
  %n01 = mul i64 %n0, %n1
  %n23 = mul i64 %n2, %n3
  %row_count = mul i64 %n01, %n23
{before}  br label %row
row:
  %row_number = phi i64 [ 0, %entry ], [ %next_row, %row_done ]
{digits}
{rows}
{row}
row_done:
  %next_row = add i64 %row_number, 1
  %more_rows = icmp ult i64 %next_row, %row_count
  br i1 %more_rows, label %row, label %end
end:
  ret void
}}
"""

_OUTPUT = """output:
  %o = phi i64 [ 0, %{come_from} ], [ %next_o, %output ]
{place}
  %place_wide = zext i32 %place to i64
{moves}
  %next_o = add i64 %o, 1
  %more_o = icmp ult i64 %next_o, %count
  br i1 %more_o, label %output, label %row_done"""
