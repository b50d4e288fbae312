"""LLVM IR of the innermost loop on the tile unit: the product of two packed panels."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.kernels.gemm.tile_types import BLOCK_ROW, LINES, TILE_BYTES, TileTypes


def multiply_ir(types: TileTypes) -> str:
    """Return ``@multiply{rows}{columns}``, of one or two tiles each: panel times panel over some steps, into registers.

    After each step some rows of another block, ``total``, are finished (tile_store_ir.py), which overlaps with the
    unit's work; behind all steps it would be out of reach of out-of-order execution. ``@store`` stores the registers.
    """
    return "".join(_multiply(types, r, c) for r in (1, 2) for c in (1, 2)) + _STORE


def _multiply(types: TileTypes, rows: int, columns: int) -> str:
    """Return one function. Tiles 0 to 3 hold totals, 4 and 5 operands of lhs, 6 and 7 operands of rhs."""
    totals = [(2 * r + c, r, c) for r in range(rows) for c in range(columns)]
    zeros = [f"  call void @llvm.x86.tilezero(i8 {tile})" for tile, *_ in totals]
    nl = "\n"
    return f"""
define internal void @multiply{rows}{columns}(ptr %lhs, ptr %rhs, i64 %steps, ptr %total, ptr %to, i64 %row,
    i64 %rows, i64 %columns, i1 %add, float %scale) noinline {{
entry:
{nl.join(zeros)}
  %steps_less = sub i64 %steps, 1
  %rows_more = add i64 %rows, %steps_less
  %share = udiv i64 %rows_more, %steps
  br label %loop
loop:
  %s = phi i64 [ 0, %entry ], [ %next, %stepped ]
  %lhs_way = mul i64 %s, {types.step_bytes}
  %rhs_way = mul i64 %s, {types.rhs_step_bytes}
  %lhs_s = getelementptr i8, ptr %lhs, i64 %lhs_way
  %rhs_s = getelementptr i8, ptr %rhs, i64 %rhs_way
{nl.join(_step(types, totals, rows, columns))}
  %r = mul i64 %s, %share
  %left = sub i64 %rows, %r
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %finish, label %stepped
finish:
  %count = call i64 @llvm.umin.i64(i64 %left, i64 %share)
  %from_r = getelementptr [{BLOCK_ROW} x i8], ptr %total, i64 %r
  %way_r = mul i64 %r, %row
  %to_r = getelementptr i8, ptr %to, i64 %way_r
  call void @finish(ptr %from_r, ptr %to_r, i64 %row, i64 %count, i64 %columns, i1 %add, float %scale)
  br label %stepped
stepped:
  %next = add nuw i64 %s, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def _step(
    types: TileTypes, totals: Sequence[tuple[int, int, int]], rows: int, columns: int
) -> list[str]:
    """Return the products of parts; an operand is loaded unless the previous product had the same one."""
    lines: list[str] = []
    loaded: tuple[int | None, int | None] = (None, None)
    for number, product in enumerate(types.products):
        for side, (name, first, halves) in enumerate((("lhs", 4, rows), ("rhs", 6, columns))):
            if loaded[side] == product[side]:
                continue
            for half in range(halves):
                at = f"%{name}{number}_{half}"
                offset = (2 * product[side] + half) * TILE_BYTES
                lines.append(f"  {at} = getelementptr i8, ptr %{name}_s, i64 {offset}")
                lines.append(
                    f"  call void @llvm.x86.tileloadd64(i8 {first + half}, ptr {at}, i64 64)"
                )
        loaded = product
        lines += [
            f"  call void @llvm.x86.{types.instruction}(i8 {t}, i8 {4 + r}, i8 {6 + c})"
            for t, r, c in totals
        ]
    return lines


#: Store of all four tiles of a total, used or not.
_STORE = "\n".join(
    [
        "define internal void @store(ptr %total) noinline {",
        *(
            f"  %to{2 * r + c} = getelementptr i8, ptr %total, i64 {r * LINES * BLOCK_ROW + c * 64}\n"
            f"  call void @llvm.x86.tilestored64(i8 {2 * r + c}, ptr %to{2 * r + c}, i64 {BLOCK_ROW})"
            for r in (0, 1)
            for c in (0, 1)
        ),
        "  ret void\n}\n",
    ]
)
