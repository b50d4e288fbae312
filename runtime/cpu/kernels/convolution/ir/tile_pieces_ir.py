"""LLVM IR of operations on f32 numbers for convolutions on the tile unit.

Numbers are split into bf16 parts as for matrix products (see tile_types, tile_block_ir), but by pairs of elements that
are adjacent along the depth. ``most`` is the address of the bits of the largest magnitudes so far, in 16 lanes. If a
magnitude reaches 2^32, a sum of scaled products might not be finite.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, cast
from runtime.codegen.ir.vectors import first_lanes, intrinsic, masked_load, prefetch
from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.gemm.tile_block_ir import SCALE
from runtime.cpu.kernels.gemm.tile_pack_ir import split_parts
from runtime.cpu.kernels.gemm.tile_types import FLOATS, INTS, LINES, TileTypes
from runtime.program.argument_record import Record
from spmd.shape import PrimitiveType

F32_TYPES = TileTypes(PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.F32)
PARTS = F32_TYPES.parts
MASK = "<16 x i1>"
#: Bits of 2^32, the least magnitude that is out of range.
_TOO_LARGE = 0x4F800000


def lanes(count: Int) -> Vector:
    """Return the mask of the first ``count`` lanes, which is empty if ``count`` is negative."""
    return first_lanes(count, LINES)


def loaded(pointer: Pointer, mask: Vector) -> Vector:
    """Load the lanes of ``mask``; the other lanes are 0."""
    return masked_load(pointer, FLOATS, mask, 4)


def parts_of(x0: Vector, x1: Vector) -> list[Vector]:
    """Return the scaled parts of two vectors of f32 as pairs of bf16; the low halves belong to ``x0``."""
    return split_parts([x.combined("fmul", SCALE) for x in (x0, x1)], PARTS)


def larger_of(before: Vector, x0: Vector, x1: Vector) -> Vector:
    """Return the largest magnitudes of ``before``, ``x0`` and ``x1`` in each lane."""
    sizes = [cast(x, "bitcast", INTS).combined("and", 0x7FFFFFFF) for x in (x0, x1)]
    return intrinsic("umax", before, intrinsic("umax", *sizes))


def enlarge(most: Pointer, x0: Vector, x1: Vector) -> None:
    """Update the largest magnitudes at ``most`` by those of ``x0`` and ``x1``."""
    most.store(larger_of(most.load(INTS), x0, x1))


def is_within(f: FunctionWriter, most: Pointer) -> Bool:
    """Return whether all magnitudes so far are in the unit's range."""
    largest: Int = f.call("i32", "llvm.vector.reduce.umax.v16i32", most.load(INTS))
    return largest.ult(_TOO_LARGE)


def fetch_ahead(*pointers: Pointer) -> None:
    """Prefetch the cache lines PREFETCH_BYTES after the addresses ``pointers``."""
    for pointer in pointers:
        prefetch(pointer.at(tuning.PREFETCH_BYTES))


def behind_each_other(to: Pointer, step: Int | int) -> list[Pointer]:
    """Return the addresses of the parts, ``step`` bytes apart, of which the first one is ``to``."""
    pointers = [to]
    for _ in range(1, PARTS):
        pointers.append(pointers[-1].at(step))
    return pointers


def or_otherwise(module: Module, name: str, record: type[Record]) -> str:
    """Add function ``name``(record), which calls ``convolve``, and the record's fallback if that returns false.

    The fallback computes everything again. Returns the text of the module.
    """
    f = FunctionWriter(name, record, module=module)
    (address,) = f.parameters
    with f.when(~f.call("i1", "convolve", address)):
        otherwise = f.view(record, address)
        f.call("void", otherwise.otherwise.name, otherwise.otherwise_record)
    return f.end()
