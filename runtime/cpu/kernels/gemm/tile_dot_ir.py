"""Native code of products of bf16 and 8-bit matrices, and of bf16 with f32, on a unit for narrow types.

Products of bf16 numbers beyond the scaled range are computed again without scaling, which loses denormals only. If an
operand is f32 this is not possible, since infinite numbers have no parts. Blocks with such numbers are multiplied one
number at a time.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.formats import BF16, F32
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.gemm.tile_block_ir import (
    SCALE,
    UNSCALE,
    call_product,
    instead_function,
    product_module,
)
from runtime.cpu.kernels.gemm.tile_types import TileTypes
from runtime.cpu.kernels.gemm.tile_unit import Unit
from spmd.shape import PrimitiveType

FUNCTION = "spmd_tile_dot"


@cache
def tile_dot_code(types: TileTypes, unit: Unit) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``types`` on ``unit``, which takes the address of a TileRecord.

    If the result is narrower than the sums, the depth must fit in one block (``most_depth``).
    """
    mixed = types.parts != types.rhs_parts
    module = product_module(types, instead=mixed, unit=unit)
    if mixed:
        _add_one_by_one(module, types)
    f = FunctionWriter(FUNCTION, module=module, parameters=("ptr",))
    (record,) = f.parameters
    if not types.is_float:
        call_product(f, record, 1.0, 1.0, checked=False)
    else:
        done = call_product(f, record, SCALE, UNSCALE, checked=True)
        if not mixed:
            with f.when(~done):
                call_product(f, record, 1.0, 1.0, checked=False)
    return host_jit().compile(f.end(), (FUNCTION,), passes=Passes.TIDY)


def _add_one_by_one(module: Module, types: TileTypes) -> None:
    """Add the function ``instead`` of ``product``, which multiplies one number at a time, in f32."""
    f = instead_function(module)
    rec, (_, i, j, d, rows, columns, depth, add) = f.record, f.parameters
    lhs_format, rhs_format, out_format = (
        F32 if kind is PrimitiveType.F32 else BF16 for kind in (types.lhs, types.rhs, types.result)
    )
    with f.loop(i + rows, first=i) as r, f.loop(j + columns, first=j) as c:
        to = rec.out.at(r * rec.out_row + c * types.result.byte_size)
        with f.when(add) as adds:
            old = to.load(out_format).to(F32)
        first = adds.merged(old, Float(f, F32, "0.0"))
        with f.repeat(d, first) as products:
            e, before = products.values
            lhs = rec.lhs.at(r * rec.lhs_line + e * rec.lhs_depth).load(lhs_format).to(F32)
            rhs = rec.rhs.at(c * rec.rhs_line + e * rec.rhs_depth).load(rhs_format).to(F32)
            total = lhs.times_plus(rhs, before)
            products.again(e + 1, total, when=(e + 1).ult(d + depth))
        to.store(total.to(out_format))
    f.finish()
