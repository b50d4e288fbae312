"""Native code that walks over places of convolutions' operands, one outer index after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Record, Word, record, word_count
from runtime.codegen.ir.values import Pointer


@record
class Place(Record):
    """Bytes in the input, the index of each of three spatial dimensions there, and bytes in another array.

    An index may lie outside: padding.
    """

    bytes: Word
    index0: Word
    index1: Word
    index2: Word
    other: Word


@record
class Unit(Place):
    """Place, taps side by side, numbers of each, bytes in w from a tap to the next, numbers of all taps."""

    taps: Word
    length: Word
    tap_bytes: Word
    all: Word


PLACE, UNIT = word_count(Place), word_count(Unit)
#: Words of a place as it is walked: the last digit of its number stands before it.
_WALKED = 1


def place_in(f: FunctionWriter, walked: Pointer) -> Any:
    """Return the view of a place that is walked."""
    return f.view(Place, walked.element("i64", _WALKED))


def walked_place(f: FunctionWriter) -> Pointer:
    return f.array(_WALKED + PLACE, "i64", align=8)


def indices(place: Any) -> Sequence[Int]:
    return place.index0, place.index1, place.index2


def add_walking(module: Module, kind: type[Record]) -> None:
    """Add ``seek``: the place of an outer index of a record of ``kind``. ``step`` moves on to the next one's."""
    f = FunctionWriter(
        "seek",
        kind,
        module=module,
        parameters=("i64", "ptr"),
        linkage="internal",
        attributes="noinline",
    )
    _, number, place = f.parameters
    rec = f.record
    sizes, outer = (rec.size3, rec.size2, rec.size1), rec.outer
    digits: list[Int] = []
    for size in sizes:
        digits.insert(0, number % size)
        number = number // size
    digits.insert(0, number)
    place.store(digits[-1])
    for part in range(PLACE):
        at = outer.word(part)
        for d, digit in enumerate(digits, 1):
            at = at + digit * outer.word(d * PLACE + part)
        place.element("i64", _WALKED + part).store(at)
    f.finish()


def step(f: FunctionWriter, following: Int, place: Pointer) -> None:
    """Move ``place`` on to outer index number ``following``, the next one."""
    outer, after = f.record.outer, place.word() + 1
    with f.when(after.ult(f.record.size3)) as along:
        place.store(after)
        for part in range(PLACE):
            slot = place.element("i64", _WALKED + part)
            slot.store(slot.word() + outer.word(4 * PLACE + part))
        along.otherwise()
        f.call("void", "seek", f.parameters[0], following, place)
