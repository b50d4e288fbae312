"""Native code that computes the addresses of dynamic slices and writes them into the records of following calls."""

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
from runtime.codegen.llvm.pass_pipelines import Passes
from spmd.shape import PrimitiveType

FUNCTION = "spmd_slice_offset"


@record
class SliceStart(Record):
    """Address of an index, its largest value, to which it is clamped, and its stride in bytes."""

    index: Address
    limit: Word
    stride: Word


@record
class SliceOffsetRecord(Record):
    """``target``: address of the word to write. ``base``: address of the slice if all starts are 0."""

    target: Address
    base: Address
    starts: Sequence[SliceStart]


@cache
def slice_offset_code(index: PrimitiveType, starts: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``starts`` starts of type ``index``; it takes a SliceOffsetRecord."""
    return host_jit().compile(slice_offset_ir(index, starts), (FUNCTION,), passes=Passes.TIDY)


def slice_offset_ir(index: PrimitiveType, starts: int) -> str:
    f = FunctionWriter(FUNCTION, SliceOffsetRecord, starts=starts)
    target, address = f.record.target, f.record.base
    for one in f.record.starts:
        at, limit, stride = one.index, one.limit, one.stride
        start = widened_index(index, at.load(f"i{8 * index.byte_size}"))
        address = address.at(inside(start, limit) * stride)
    target.store(address)
    return f.end()


@record
class SliceBases(Record):
    """Addresses of slices if all starts are 0."""

    bases: Sequence[Address]


@record
class SliceOffsetsRecord(SliceBases):
    """Bases, the starts that ``shifted`` reads, and the addresses of the words to write."""

    starts: StartsRecord
    targets: Sequence[Address]


@cache
def slice_offsets_code(variant: StartsVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for the arrays that ``variant`` shifts; it takes a SliceOffsetsRecord."""
    return host_jit().compile(slice_offsets_ir(variant), (FUNCTION,), passes=Passes.TIDY)


def slice_offsets_ir(variant: StartsVariant) -> str:
    module = Module(*starts_ir(variant))
    f = FunctionWriter(FUNCTION, SliceBases, module=module, bases=len(variant.shifts))
    addresses = shifted(f, variant, dict(enumerate(f.record.bases)))
    for address in addresses.values():
        f.next_word("ptr").store(address)
    return f.end()
