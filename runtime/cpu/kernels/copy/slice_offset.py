"""Calls that store the addresses of dynamic slices in the records of later calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.loop.loop import (
    ArrayAccess,
    starting_accesses,
    starts_record,
    starts_variant,
)
from runtime.cpu.kernels.native_call import NativeAction, native_call
from runtime.program.argument_record import Address, Record, record
from runtime.program.records.loop import StartsStage
from runtime.program.slice_starts import StartsRecord, StartsVariant
from spmd.literal import NDArray

FUNCTION = "spmd_slice_offset"


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
def slice_offsets_code(variant: StartsVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for the arrays that ``variant`` offsets, which takes a SliceOffsetsRecord."""
    ir = DeferredIr("runtime.cpu.kernels.copy.slice_offset_ir", "slice_offsets_ir", (variant,))
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.TIDY)


def storing_addresses(
    slices: Mapping[int, ArrayAccess], stages: Sequence[StartsStage], operands: Sequence[NDArray]
) -> NativeAction:
    """Return a call that stores the address of each of ``slices`` in the word at its key.

    The last of ``stages``, which read ``operands``, computes the starts that the shifts of the slices name.
    """
    accesses = tuple(slices.values())
    starting = starting_accesses(stages, operands)
    code = slice_offsets_code(starts_variant(starting, accesses))
    bases = [access.start for access in accesses]
    record = SliceOffsetsRecord(bases, starts_record(starting, accesses), tuple(slices))
    return native_call(code, FUNCTION, record.to_array(), tuple(operands))
