"""Native code that works out where dynamic slices begin, and writes it into the records of the calls that follow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.ir.dynamic_starts import (
    StartsRecord,
    StartsVariant,
    inside,
    shifted,
    starts_ir,
    widened_index,
)
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from spmd.shape import PrimitiveType

FUNCTION = "spmd_place"


@record
class SliceStart(Record):
    """Address of an index, largest value it may have, bytes that a step of it goes; indices are clamped."""

    index: Address
    limit: Word
    stride: Word


@record
class SliceOffsetRecord(Record):
    """``target``: the address that is written to. ``base``: where the slice begins if all starts are 0."""

    target: Address
    base: Address
    starts: Sequence[SliceStart]


@cache
def place_code(index: PrimitiveType, starts: int) -> NativeLibrary:
    """``FUNCTION`` for so many starts of type ``index``: takes the address of a SliceOffsetRecord."""
    return host_jit().compile(place_ir(index, starts), (FUNCTION,))


def place_ir(index: PrimitiveType, starts: int) -> str:
    f = FunctionWriter(FUNCTION, SliceOffsetRecord, starts=starts)
    target, place = f.record.target, f.record.base
    for one in f.record.starts:
        at, limit, stride = one.index, one.limit, one.stride
        start = widened_index(index, at.load(f"i{8 * index.byte_size}"))
        place = place.at(inside(start, limit) * stride)
    target.store(place)
    return f.end()


@record
class SliceBases(Record):
    """Addresses at which slices begin if all starts are 0."""

    bases: Sequence[Address]


@record
class SliceOffsetsRecord(SliceBases):
    """Bases, then words that ``shifted`` reads, and the addresses of the words that are written to."""

    starts: StartsRecord
    targets: Sequence[Address]


@cache
def places_code(form: StartsVariant) -> NativeLibrary:
    """``FUNCTION`` for as many addresses as ``form`` shifts arrays: takes the address of a SliceOffsetsRecord."""
    return host_jit().compile(places_ir(form), (FUNCTION,))


def places_ir(form: StartsVariant) -> str:
    module = Module(*starts_ir(form))
    f = FunctionWriter(FUNCTION, SliceBases, module=module, bases=len(form.shifts))
    places = shifted(f, form, dict(enumerate(f.record.bases)))
    for place in places.values():
        f.next_word("ptr").store(place)
    return f.end()
