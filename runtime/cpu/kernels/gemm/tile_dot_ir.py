"""Native code of products of bf16 and 8-bit matrices on a unit for them, and of bf16 with f32, without conversion.

Products of bf16 numbers beyond the scaled range are computed again unscaled: then only denormals are lost. If an
operand is f32 this is not possible, since infinite numbers have no parts; blocks with such numbers are multiplied one
number at a time.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.gemm.tile_block_ir import ONE, SCALE, UNSCALE, product_ir
from runtime.cpu.kernels.gemm.tile_record import instead_ir
from runtime.cpu.kernels.gemm.tile_types import TileTypes
from runtime.cpu.kernels.gemm.tile_unit import Unit
from spmd.shape import PrimitiveType

FUNCTION = "spmd_tile_dot"


@cache
def tile_dot_code(types: TileTypes, unit: Unit) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes a TileRecord; narrow results need a depth of one block."""
    mixed = types.parts != types.rhs_parts
    if not types.is_float:
        call = _PLAIN.format(one=ONE)
    elif mixed:
        call = _SCALED.format(scale=SCALE, unscale=UNSCALE)
    else:
        call = _SCALED_OR_NOT.format(one=ONE, scale=SCALE, unscale=UNSCALE)
    ir = product_ir(types, instead=mixed, unit=unit) + (_one_by_one(types) if mixed else "")
    ir += f"\ndefine void @{FUNCTION}(ptr %record) {{{call}}}\n"
    return host_jit().compile(ir, (FUNCTION,), passes=Passes.TIDY)


def _one_by_one(types: TileTypes) -> str:
    """Return ``@instead`` of ``@product``, which multiplies one number at a time."""
    narrow = types.result is PrimitiveType.BF16
    body = _ONE_BY_ONE.format(
        read_lhs=_read("lhs", types.lhs),
        read_rhs=_read("rhs", types.rhs),
        result="bfloat" if narrow else "float",
        result_size=types.result.byte_size,
        old="  %old = fpext bfloat %stored to float"
        if narrow
        else "  %old = fadd float %stored, -0.0",
        new="  %new = fptrunc float %sum to bfloat" if narrow else "  %new = fadd float %sum, -0.0",
    )
    return _ADDRESS + instead_ir(body)


def _read(name: str, kind: PrimitiveType) -> str:
    if kind is PrimitiveType.F32:
        return f"  %{name}_value = load float, ptr %{name}_at"
    return (
        f"  %{name}_stored = load bfloat, ptr %{name}_at\n"
        f"  %{name}_value = fpext bfloat %{name}_stored to float"
    )


_PLAIN = """
  %done = call i1 @product(ptr %record, float {one}, float {one}, i1 false)
  ret void
"""

_SCALED = """
  %done = call i1 @product(ptr %record, float {scale}, float {unscale}, i1 true)
  ret void
"""

_SCALED_OR_NOT = """
  %done = call i1 @product(ptr %record, float {scale}, float {unscale}, i1 true)
  br i1 %done, label %end, label %again
again:
  %done_again = call i1 @product(ptr %record, float {one}, float {one}, i1 false)
  br label %end
end:
  ret void
"""

_ADDRESS = """
define internal ptr @element(ptr %base, i64 %line, i64 %line_bytes, i64 %d, i64 %d_bytes) alwaysinline {
  %line_way = mul i64 %line, %line_bytes
  %d_way = mul i64 %d, %d_bytes
  %way = add i64 %line_way, %d_way
  %address = getelementptr i8, ptr %base, i64 %way
  ret ptr %address
}
"""

_ONE_BY_ONE = """  %i_end = add i64 %i, %rows
  %j_end = add i64 %j, %columns
  %d_end = add i64 %d, %depth
  br label %row
row:
  %r = phi i64 [ %i, %entry ], [ %next_r, %row_done ]
  br label %column
column:
  %c = phi i64 [ %j, %row ], [ %next_c, %summed ]
  %to = call ptr @element(ptr %out, i64 %r, i64 %out_row, i64 %c, i64 {result_size})
  br i1 %add, label %adds, label %sum_up
adds:
  %stored = load {result}, ptr %to
{old}
  br label %sum_up
sum_up:
  %first = phi float [ 0.0, %column ], [ %old, %adds ]
  br label %loop
loop:
  %e = phi i64 [ %d, %sum_up ], [ %next_e, %loop ]
  %before = phi float [ %first, %sum_up ], [ %sum, %loop ]
  %lhs_at = call ptr @element(ptr %lhs, i64 %r, i64 %lhs_line, i64 %e, i64 %lhs_depth)
  %rhs_at = call ptr @element(ptr %rhs, i64 %c, i64 %rhs_line, i64 %e, i64 %rhs_depth)
{read_lhs}
{read_rhs}
  %product = fmul contract float %lhs_value, %rhs_value
  %sum = fadd contract float %before, %product
  %next_e = add i64 %e, 1
  %more_e = icmp ult i64 %next_e, %d_end
  br i1 %more_e, label %loop, label %summed
summed:
{new}
  store {result} %new, ptr %to
  %next_c = add i64 %c, 1
  %more_c = icmp ult i64 %next_c, %j_end
  br i1 %more_c, label %column, label %row_done
row_done:
  %next_r = add i64 %r, 1
  %more_r = icmp ult i64 %next_r, %i_end
  br i1 %more_r, label %row, label %end
end:
  ret void
"""
