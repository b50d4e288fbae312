"""Records and code of the calls that store the addresses of dynamic slices in the records of later calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.codegen.record import Address, Record, Word, record
from runtime.codegen.starts import StartsRecord, StartsVariant
from spmd.shape import PrimitiveType

FUNCTION = "spmd_slice_offset"
_IR = "runtime.cpu.kernels.copy.slice_offset_ir"


@record
class SliceStart(Record):
    """Start of a slice: the address of the index, the limit to which it is clamped, and the stride in bytes."""

    index: Address
    limit: Word
    stride: Word


@record
class SliceOffsetRecord(Record):
    """Record of one slice.

    ``target`` is the address of the word to write, and ``base`` the address of the slice whose starts are all 0.
    """

    target: Address
    base: Address
    starts: Sequence[SliceStart]


@record
class SliceBases(Record):
    """Addresses of the slices whose starts are all 0."""

    bases: Sequence[Address]


@record
class SliceOffsetsRecord(SliceBases):
    """Bases of slices, the starts that ``shifted`` (dynamic_starts.py) reads, and the addresses of the words to write.

    Bases and targets have the same order.
    """

    starts: StartsRecord
    targets: Sequence[Address]


@cache
def slice_offset_code(index: PrimitiveType, starts: int) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``starts`` starts of type ``index``, which takes a SliceOffsetRecord."""
    return host_jit().compile(
        DeferredIr(_IR, "slice_offset_ir", (index, starts)), (FUNCTION,), passes=Passes.TIDY
    )


@cache
def slice_offsets_code(variant: StartsVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for the arrays that ``variant`` offsets, which takes a SliceOffsetsRecord."""
    return host_jit().compile(
        DeferredIr(_IR, "slice_offsets_ir", (variant,)), (FUNCTION,), passes=Passes.TIDY
    )
