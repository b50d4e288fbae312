"""LLVM IR of the end of a product on the tile unit: a summed block is unscaled, narrowed, accumulated and stored."""

from __future__ import annotations

from runtime.codegen.elements.bfloat16 import CARRIED, QUIET, carried_of_several
from runtime.codegen.elements.variants import variant
from runtime.cpu.kernels.gemm.tile_types import (
    BLOCK_ROW,
    LINES,
    TileTypes,
    lanes_below,
    listed,
    repeated,
    spread,
)
from spmd.shape import PrimitiveType


def finish_ir(types: TileTypes) -> str:
    """Return ``@finish``, which unscales rows and columns of a summed block and stores or adds them to the result."""
    narrow, short = types.result is PrimitiveType.BF16, len(types.products) == 1
    body = [line for half in range(2) for line in _scaled_back(types, half)]
    before: list[str] = []
    carried = ""
    if narrow:
        body += _stored_bf16()
        carried = carried_of_several(LINES, "internal")
        masks = f"<{LINES} x i1> %mask0, <{LINES} x i1> %mask1"
        order = listed(range(2 * LINES))
        before.append(f"  %mask = shufflevector {masks}, <{2 * LINES} x i32> {order}")
    else:
        t = "float" if types.is_float else "i32"
        body += _stored_sums(t, short=short)
        before += [
            f"  %old_mask{half} = and <{LINES} x i1> %mask{half}, %adds" for half in range(2)
        ]
    nl, latch = "\n", "%loop" if narrow or short else "%storing"
    return f"""{carried}

define internal void @finish(ptr %total, ptr %out, i64 %row, i64 %rows, i64 %columns, i1 %add, float %scale) noinline {{
entry:{spread("adds", "%add", "i1")}{spread("scales", "%scale", "float")}
  %columns1 = sub i64 %columns, {LINES}{lanes_below("mask0", "%columns")}{lanes_below("mask1", "%columns1")}
{nl.join(before)}
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %next, {latch} ]
  %way = mul i64 %r, %row
  %to = getelementptr i8, ptr %out, i64 %way
  %from = getelementptr [{BLOCK_ROW} x i8], ptr %total, i64 %r
{nl.join(body)}
  %next = add nuw i64 %r, 1
  %more = icmp slt i64 %next, %rows
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def _scaled_back(types: TileTypes, half: int) -> list[str]:
    """Return lines that load ``%x{half}``, 16 unscaled sums of a row of the block."""
    vector = f"<{LINES} x {'float' if types.is_float else 'i32'}>"
    address = f"  %from{half} = getelementptr i8, ptr %from, i64 {64 * half}"
    if not types.is_float:
        return [address, f"  %x{half} = load {vector}, ptr %from{half}, align 64"]
    return [
        address,
        f"  %summed{half} = load {vector}, ptr %from{half}, align 64",
        f"  %x{half} = fmul {vector} %summed{half}, %scales",
    ]


def _stored_sums(t: str, *, short: bool) -> list[str]:
    """Return lines that store ``%x0`` and ``%x1`` (``t``), or add them to the result.

    A masked load with an empty mask fetches the line that is stored to, and waits for it. Short products, whose next
    line follows soon, are faster with it; others are slower (measured).
    """
    vector, mask = f"<{LINES} x {t}>", f"<{LINES} x i1>"
    suffix = f"v{LINES}{'f32' if t == 'float' else t}.p0"
    addresses = [f"  %to{n} = getelementptr {vector}, ptr %to, i64 {n}" for n in (0, 1)]
    added = [
        f"  %old{n} = call {vector} @llvm.masked.load.{suffix}"
        f"(ptr %to{n}, i32 4, {mask} %old_mask{n}, {vector} zeroinitializer)\n"
        f"  %sum{n} = {'fadd' if t == 'float' else 'add'} {vector} %x{n}, %old{n}"
        for n in (0, 1)
    ]
    if not short:
        skipped = ["  br i1 %add, label %adding, label %storing", "adding:", *added]
        skipped += ["  br label %storing", "storing:"]
        added = skipped
    new = "sum" if short else "new"
    phis = [f"  %new{n} = phi {vector} [ %x{n}, %loop ], [ %sum{n}, %adding ]" for n in (0, 1)]
    stored = [
        f"  call void @llvm.masked.store.{suffix}"
        f"({vector} %{new}{n}, ptr %to{n}, i32 4, {mask} %mask{n})"
        for n in (0, 1)
    ]
    return [*addresses, *added, *([] if short else phis), *stored]


def _stored_bf16() -> list[str]:
    """Return lines that store both halves as bf16, rounded to nearest, ties to even; nan stays nan."""
    ints, halves, mask = f"<{LINES} x i32>", f"<{2 * LINES} x i16>", f"<{2 * LINES} x i1>"
    lines = []
    for half in range(2):
        bits, uno = f"%bits{half}", f"<{LINES} x i1> %none{half}"
        lines += [
            f"  {bits} = bitcast <{LINES} x float> %x{half} to {ints}",
            f"  %near{half} = call {ints} @{variant(CARRIED, LINES)}({ints} {bits})",
            f"  %quiet{half} = or {ints} {bits}, {repeated(QUIET, 'i32')}",
            f"  %none{half} = fcmp uno <{LINES} x float> %x{half}, zeroinitializer",
            f"  %chosen{half} = select {uno}, {ints} %quiet{half}, {ints} %near{half}",
            f"  %halves{half} = bitcast {ints} %chosen{half} to {halves}",
        ]
    upper = f"<{2 * LINES} x i32> {listed(range(1, 4 * LINES, 2))}"
    stored = f"{halves} %narrow, ptr %to, i32 2, {mask} %mask"
    return [
        *lines,
        f"  %narrow = shufflevector {halves} %halves0, {halves} %halves1, {upper}",
        f"  call void @llvm.masked.store.v{2 * LINES}i16.p0({stored})",
    ]
