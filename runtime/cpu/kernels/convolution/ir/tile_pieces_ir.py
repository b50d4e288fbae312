"""LLVM IR of products of f32 on the tile unit, for convolutions.

Numbers are split as for matrix products (see tile_types, tile_block_ir), but by pairs of adjacent elements along the
depth. ``%most`` holds the bits of the largest magnitudes so far: from 2^32 on a sum of scaled products might not be
finite.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.codegen.ir.module import Module
from runtime.cpu.kernels.gemm.tile_pack_ir import add_turn
from runtime.cpu.kernels.gemm.tile_types import (
    CONFIG_IR,
    TileTypes,
    lanes_below,
    repeated,
    spread,
)
from spmd.shape import PrimitiveType

_SCALE = "0x4170000000000000"
F32_TYPES = TileTypes(PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.F32)
PARTS = F32_TYPES.parts
#: Bits of 2^32: the least magnitude that is too large.
TOO_LARGE = 0x4F800000
#: Result type of ``@split``.
SPLIT = "{<16 x i32>, <16 x i32>, <16 x i32>}"

_HELPERS = f"""

; lanes 0 .. %count - 1, none where that is negative
define internal <16 x i1> @lanes(i64 %count) alwaysinline {{
  %most = call i64 @llvm.umin.i64(i64 %count, i64 16)
  %negative = icmp slt i64 %count, 0
  %given = select i1 %negative, i64 0, i64 %most
{lanes_below("mask", "%given")}
  ret <16 x i1> %mask
}}

define internal <16 x float> @loaded(ptr %from, <16 x i1> %mask) alwaysinline {{
  %value = call <16 x float> @llvm.masked.load.v16f32.p0(
    ptr %from, i32 4, <16 x i1> %mask, <16 x float> zeroinitializer)
  ret <16 x float> %value
}}

; 16 addresses %stride bytes apart
define internal <16 x ptr> @apart(ptr %first, i64 %stride) alwaysinline {{
{spread("all", "%stride", "i64")}
  %ways = mul <16 x i64> %all, <{", ".join(f"i64 {i}" for i in range(16))}>
  %addresses = getelementptr i8, ptr %first, <16 x i64> %ways
  ret <16 x ptr> %addresses
}}

define internal <16 x float> @gathered(ptr %from, i64 %stride, <16 x i1> %mask) alwaysinline {{
  %addresses = call <16 x ptr> @apart(ptr %from, i64 %stride)
  %value = call <16 x float> @llvm.masked.gather.v16f32.v16p0(
    <16 x ptr> %addresses, i32 4, <16 x i1> %mask, <16 x float> zeroinitializer)
  ret <16 x float> %value
}}
"""

#: Functions of ``%most``, the bits of the largest magnitude in each of 16 lanes, and a test of their bound.
_MOST = f"""
define internal <16 x i32> @larger(<16 x i32> %before, <16 x float> %x0, <16 x float> %x1) alwaysinline {{
  %bits0 = bitcast <16 x float> %x0 to <16 x i32>
  %bits1 = bitcast <16 x float> %x1 to <16 x i32>
  %size0 = and <16 x i32> %bits0, {repeated(0x7FFFFFFF, "i32")}
  %size1 = and <16 x i32> %bits1, {repeated(0x7FFFFFFF, "i32")}
  %sizes = call <16 x i32> @llvm.umax.v16i32(<16 x i32> %size0, <16 x i32> %size1)
  %after = call <16 x i32> @llvm.umax.v16i32(<16 x i32> %before, <16 x i32> %sizes)
  ret <16 x i32> %after
}}

define internal void @widen(ptr %most, <16 x float> %x0, <16 x float> %x1) alwaysinline {{
  %before = load <16 x i32>, ptr %most
  %after = call <16 x i32> @larger(<16 x i32> %before, <16 x float> %x0, <16 x float> %x1)
  store <16 x i32> %after, ptr %most
  ret void
}}

define internal i1 @within(ptr %most) alwaysinline {{
  %lanes = load <16 x i32>, ptr %most
  %largest = call i32 @llvm.vector.reduce.umax.v16i32(<16 x i32> %lanes)
  %is_within = icmp ult i32 %largest, {TOO_LARGE}
  ret i1 %is_within
}}
"""


def or_otherwise_ir(function: str, fields: Callable[..., str]) -> str:
    """Return ``function``, which calls ``@convolve``, and the record's fallback if numbers are too large for it.

    ``fields``: function that returns lines which load the record's fields of these names.
    """
    return f"""
define void @{function}(ptr %record) {{
entry:
  %is_right = call i1 @convolve(ptr %record)
  br i1 %is_right, label %end, label %too_large
too_large:
{fields("otherwise", "otherwise_record")}
  call void %otherwise(ptr %otherwise_record)
  br label %end
end:
  ret void
}}
"""


def _split() -> str:
    """Return ``@split``: two vectors of f32 to three of pairs of bf16, the first vector's in the low halves."""
    lines = [
        f"define internal {SPLIT}",
        "    @split(<16 x float> %x0, <16 x float> %x1) alwaysinline {",
    ]
    for i in range(2):
        lines.append(f"  %rest0{i} = fmul <16 x float> %x{i}, {repeated(_SCALE, 'float')}")
    for part in range(PARTS):
        for i in range(2):
            lines.append(f"  %b{part}{i} = bitcast <16 x float> %rest{part}{i} to <16 x i32>")
            rounding = 0x8000 if part < PARTS - 1 else 0  # the last part is exact
            lines += [
                f"  %r{part}{i} = add <16 x i32> %b{part}{i}, {repeated(rounding, 'i32')}",
                f"  %high{part}{i} = and <16 x i32> %r{part}{i}, {repeated(-65536, 'i32')}",
                f"  %value{part}{i} = bitcast <16 x i32> %high{part}{i} to <16 x float>",
                f"  %rest{part + 1}{i} = fsub <16 x float> %rest{part}{i}, %value{part}{i}",
            ]
        lines += [
            f"  %low{part} = lshr <16 x i32> %r{part}0, {repeated(16, 'i32')}",
            f"  %pair{part} = or <16 x i32> %low{part}, %high{part}1",
        ]
    lines += [
        f"  %s0 = insertvalue {SPLIT} poison, <16 x i32> %pair0, 0",
        f"  %s1 = insertvalue {SPLIT} %s0, <16 x i32> %pair1, 1",
        f"  %s2 = insertvalue {SPLIT} %s1, <16 x i32> %pair2, 2",
        f"  ret {SPLIT} %s2",
        "}\n",
    ]
    return "\n".join(lines)


#: Functions for ``@product`` (tile_block_ir) and for packing.
_m = Module()
add_turn(_m)
TILES = "".join((CONFIG_IR, _HELPERS, _MOST, _split(), _m.functions()))
