"""Native code that computes the addresses of dynamic slices and stores them in the records of later calls."""

from __future__ import annotations

from runtime.codegen.ir.dynamic_starts import inside, shifted, starts_ir, widened_index
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.starts import StartsVariant
from runtime.cpu.kernels.copy.slice_offset import FUNCTION, SliceBases, SliceOffsetRecord
from spmd.shape import PrimitiveType


def slice_offset_ir(index: PrimitiveType, starts: int) -> str:
    """Return the IR of ``slice_offset_code``."""
    f = FunctionWriter(FUNCTION, SliceOffsetRecord, starts=starts)
    target, address = f.record.target, f.record.base
    for one in f.record.starts:
        at, limit, stride = one.index, one.limit, one.stride
        start = widened_index(index, at.load(f"i{8 * index.byte_size}"))
        address = address.at(inside(start, limit) * stride)
    target.store(address)
    return f.end()


def slice_offsets_ir(variant: StartsVariant) -> str:
    """Return the IR of ``slice_offsets_code``."""
    module = Module(*starts_ir(variant))
    f = FunctionWriter(FUNCTION, SliceBases, module=module, bases=len(variant.shifts))
    addresses = shifted(f, variant, dict(enumerate(f.record.bases)))
    for address in addresses.values():
        f.next_word("ptr").store(address)
    return f.end()
