"""Native code that iterates over positions in the operands of a convolution, one outer index after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, indices_of
from runtime.program.argument_record import Record, Word, record, word_count


@record
class Position(Record):
    """Offset in the input in bytes, three spatial indices there, and the offset in another array in bytes.

    An index may be outside of the input, in padding.
    """

    bytes: Word
    index0: Word
    index1: Word
    index2: Word
    other: Word


@record
class Unit(Position):
    """Run of ``taps`` adjacent window elements, with the position of the first one.

    ``length`` is the number of elements per tap, ``tap_bytes`` the distance of taps in w in bytes, and ``all`` the
    number of elements of all taps.
    """

    taps: Word
    length: Word
    tap_bytes: Word
    all: Word


POSITION, UNIT = word_count(Position), word_count(Unit)
#: Number of words of a cursor that precede its position. They hold the current outer index.
_WALKED = 1


def position_in(f: FunctionWriter, cursor: Pointer) -> Any:
    """Return a view of the position of ``cursor``."""
    return f.view(Position, cursor.element("i64", _WALKED))


def position_cursor(f: FunctionWriter) -> Pointer:
    """Return a cursor on the stack, which ``seek`` must set."""
    return f.array(_WALKED + POSITION, "i64", align=8)


def indices(position: Any) -> Sequence[Int]:
    """Return the three spatial indices of ``position``."""
    return position.index0, position.index1, position.index2


def add_walking(module: Module, kind: type[Record]) -> None:
    """Add ``seek``(record, number, cursor), which sets a cursor to outer index ``number`` of a record of ``kind``."""
    f = internal_function(module, "seek", "i64", "ptr", record=kind)
    _, number, cursor = f.parameters
    rec = f.record
    outer_indices, outer = indices_of(number, (rec.size1, rec.size2, rec.size3)), rec.outer
    cursor.store(outer_indices[-1])
    for part in range(POSITION):
        at = outer.word(part)
        for d, index in enumerate(outer_indices, 1):
            at = at + index * outer.word(d * POSITION + part)
        cursor.element("i64", _WALKED + part).store(at)
    f.finish()


def step(f: FunctionWriter, following: Int, cursor: Pointer) -> None:
    """Write the code that advances ``cursor`` to the next outer index, ``following``."""
    outer, after = f.record.outer, cursor.word() + 1
    with f.when(after.ult(f.record.size3)) as along:
        cursor.store(after)
        for part in range(POSITION):
            field = cursor.element("i64", _WALKED + part)
            field.store(field.word() + outer.word(4 * POSITION + part))
        along.otherwise()
        f.call("void", "seek", f.parameters[0], following, cursor)
