"""Native code that works out where dynamic slices begin, and writes it into the records of the calls that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.ir.dynamic_starts import (
    CLAMPS,
    StartsForm,
    moved_inside,
    shifted,
    starts_ir,
    widened_index,
)
from runtime.codegen.ir.function_writer import NestWriter
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from spmd.shape import PrimitiveType

FUNCTION = "spmd_place"


@dataclass(frozen=True, slots=True)
class PlaceWords:
    """``word``: the address that is written to. ``base``: where the slice begins if all starts are 0.

    starts: (address of an index, largest value it may have, bytes that a step of it goes); indices are clamped.
    """

    word: int
    base: int
    starts: Sequence[tuple[int, int, int]]

    def packed(self) -> list[int]:
        words = [self.word, self.base]
        return words + [word for start in self.starts for word in start]


@cache
def place_code(index: PrimitiveType, starts: int) -> NativeLibrary:
    """``FUNCTION`` for so many starts of type ``index``: takes the address of packed words."""
    return host_jit().compile(place_ir(index, starts), (FUNCTION,))


def place_ir(index: PrimitiveType, starts: int) -> str:
    writer = NestWriter()
    word, place = writer.next_word("ptr"), writer.next_word("ptr")
    kind = f"i{8 * index.byte_size}"
    for _ in range(starts):
        at, limit, stride = writer.next_word("ptr"), writer.next_word(), writer.next_word()
        start = widened_index(writer, index, writer.value(f"load {kind}, ptr {at}"))
        place = moved_inside(writer, place, start, limit, stride)
    writer.add(f"store ptr {place}, ptr {word}")
    return "\n".join([*CLAMPS, writer.function(FUNCTION)])


@cache
def places_code(form: StartsForm) -> NativeLibrary:
    """``FUNCTION`` for as many addresses as ``form`` shifts arrays: the record has where each begins if all starts are
    0, then what ``form`` asks for, then the addresses of the words that are written to.
    """
    return host_jit().compile(places_ir(form), (FUNCTION,))


def places_ir(form: StartsForm) -> str:
    writer = NestWriter()
    count = len(form.shifts)
    bases = {i: writer.next_word("ptr") for i in range(count)}
    places = shifted(writer, form, bases, [False] * count)
    for i in range(count):
        writer.add(f"store ptr {places[i]}, ptr {writer.next_word('ptr')}")
    return "\n".join([*dict.fromkeys(starts_ir(form)), writer.function(FUNCTION)])
