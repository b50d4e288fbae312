"""Native code that computes the addresses of dynamic slices and stores them in the records of later calls."""

from __future__ import annotations

from runtime.codegen.ir.dynamic_starts import shifted, starts_ir
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.cpu.kernels.copy.slice_offset import FUNCTION, SliceBases
from runtime.program.slice_starts import StartsVariant


def slice_offsets_ir(variant: StartsVariant) -> str:
    """Return the IR of ``slice_offsets_code``."""
    module = Module(*starts_ir(variant))
    f = FunctionWriter(FUNCTION, SliceBases, module=module, bases=len(variant.shifts))
    addresses = shifted(f, variant, dict(enumerate(f.record.bases)))
    for address in addresses.values():
        f.next_word("ptr").store(address)
    return f.end()
