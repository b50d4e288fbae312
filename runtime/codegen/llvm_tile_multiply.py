"""The innermost loop: the product of two packed panels, in the tile unit's registers."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.llvm_tiles import BLOCK_ROW, LINES, TILE_BYTES, TileForm


def multiply_ir(form: TileForm) -> str:
    """``@multiply{rows}{columns}``, of one or two tiles each: total = lhs panel times rhs panel over some steps."""
    declared = f"declare void @llvm.x86.{form.instruction}(i8, i8, i8)\n"
    return declared + "".join(_multiply(form, r, c) for r in (1, 2) for c in (1, 2))


def _multiply(form: TileForm, rows: int, columns: int) -> str:
    """Tiles 0 to 3 hold the total, 4 and 5 those of lhs, 6 and 7 those of rhs."""
    totals = [(2 * r + c, r, c) for r in range(rows) for c in range(columns)]
    zeros = [f"  call void @llvm.x86.tilezero(i8 {tile})" for tile, *_ in totals]
    stores = [
        f"  %to{t} = getelementptr i8, ptr %total, i64 {r * LINES * BLOCK_ROW + c * 64}\n"
        f"  call void @llvm.x86.tilestored64(i8 {t}, ptr %to{t}, i64 {BLOCK_ROW})"
        for t, r, c in totals
    ]
    nl = "\n"
    return f"""
define internal void @multiply{rows}{columns}(ptr %lhs, ptr %rhs, i64 %steps, ptr %total) noinline {{
entry:
{nl.join(zeros)}
  br label %loop
loop:
  %s = phi i64 [ 0, %entry ], [ %next, %loop ]
  %lhs_way = mul i64 %s, {form.step_bytes}
  %rhs_way = mul i64 %s, {form.rhs_step_bytes}
  %lhs_s = getelementptr i8, ptr %lhs, i64 %lhs_way
  %rhs_s = getelementptr i8, ptr %rhs, i64 %rhs_way
{nl.join(_step(form, totals, rows, columns))}
  %next = add nuw i64 %s, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %end
end:
{nl.join(stores)}
  ret void
}}
"""


def _step(
    form: TileForm, totals: Sequence[tuple[int, int, int]], rows: int, columns: int
) -> list[str]:
    """Product of parts by product; operands are loaded where the product before had others."""
    lines: list[str] = []
    held: tuple[int | None, int | None] = (None, None)
    for number, product in enumerate(form.products):
        for side, (name, first, halves) in enumerate((("lhs", 4, rows), ("rhs", 6, columns))):
            if held[side] == product[side]:
                continue
            for half in range(halves):
                at = f"%{name}{number}_{half}"
                place = (2 * product[side] + half) * TILE_BYTES
                lines.append(f"  {at} = getelementptr i8, ptr %{name}_s, i64 {place}")
                lines.append(
                    f"  call void @llvm.x86.tileloadd64(i8 {first + half}, ptr {at}, i64 64)"
                )
        held = product
        lines += [
            f"  call void @llvm.x86.{form.instruction}(i8 {t}, i8 {4 + r}, i8 {6 + c})"
            for t, r, c in totals
        ]
    return lines
