"""The end of a product on the tile unit: a summed block is scaled back, narrowed, added up, and stored."""

from __future__ import annotations

from runtime.codegen.elements.bfloat16 import CARRIED, QUIET, carried_of_several
from runtime.codegen.elements.variants import variant
from runtime.cpu.kernels.gemm.tile_types import (
    BLOCK_ROW,
    LINES,
    TileForm,
    lanes_below,
    listed,
    repeated,
    spread,
)
from spmd.shape import PrimitiveType


def finish_ir(form: TileForm) -> str:
    """``@finish``: some rows and columns of a summed block, scaled back, into the result or added to it."""
    narrow, short = form.result is PrimitiveType.BF16, len(form.products) == 1
    body = [line for half in range(2) for line in _scaled_back(form, half)]
    before: list[str] = []
    if narrow:
        body += _stored_bf16()
        declared = _masked("store", 2 * LINES, "i16") + carried_of_several(LINES, "internal")
        masks = f"<{LINES} x i1> %mask0, <{LINES} x i1> %mask1"
        order = listed(range(2 * LINES))
        before.append(f"  %mask = shufflevector {masks}, <{2 * LINES} x i32> {order}")
    else:
        t = "float" if form.is_float else "i32"
        body += _stored_sums(t, short=short)
        before += [
            f"  %old_mask{half} = and <{LINES} x i1> %mask{half}, %adds" for half in range(2)
        ]
        declared = _masked("store", LINES, t) + _masked("load", LINES, t)
    nl, latch = "\n", "%loop" if narrow or short else "%storing"
    return f"""{declared}

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


def _masked(what: str, lanes: int, t: str) -> str:
    """Declares a masked load, or store, of vectors."""
    vector, mask = f"<{lanes} x {t}>", f"<{lanes} x i1>"
    name = f"llvm.masked.{what}.v{lanes}{'f32' if t == 'float' else t}.p0"
    if what == "store":
        return f"\ndeclare void @{name}({vector}, ptr, i32, {mask})"
    return f"\ndeclare {vector} @{name}(ptr, i32, {mask}, {vector})"


def _scaled_back(form: TileForm, half: int) -> list[str]:
    """``%x{half}``: 16 sums of a row of the block."""
    vector = f"<{LINES} x {'float' if form.is_float else 'i32'}>"
    place = f"  %from{half} = getelementptr i8, ptr %from, i64 {64 * half}"
    if not form.is_float:
        return [place, f"  %x{half} = load {vector}, ptr %from{half}, align 64"]
    return [
        place,
        f"  %summed{half} = load {vector}, ptr %from{half}, align 64",
        f"  %x{half} = fmul {vector} %summed{half}, %scales",
    ]


def _stored_sums(t: str, *, short: bool) -> list[str]:
    """Lines that store ``%x0`` and ``%x1`` (``t``), or their sums with what lies there.

    Masked loads that load nothing where nothing is added fetch the line that is stored to, and wait for it. Short
    products, of which the next line is soon there, gain by that; others lose (measured).
    """
    vector, mask = f"<{LINES} x {t}>", f"<{LINES} x i1>"
    suffix = f"v{LINES}{'f32' if t == 'float' else t}.p0"
    places = [f"  %to{n} = getelementptr {vector}, ptr %to, i64 {n}" for n in (0, 1)]
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
    return [*places, *added, *([] if short else phis), *stored]


def _stored_bf16() -> list[str]:
    """Lines that store both halves as bf16: to the nearest, ties to even; what is not a number stays one."""
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
