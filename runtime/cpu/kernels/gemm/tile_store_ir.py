"""LLVM IR of the end of a product on the tile unit: a block of sums is unscaled, narrowed, accumulated and stored."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.bfloat16 import CARRIED, QUIET, carried_of_several
from runtime.codegen.elements.builder import Bool
from runtime.codegen.elements.variants import variant
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, Vector, cast, selected, splat
from runtime.codegen.ir.vectors import first_lanes, masked_load, masked_store
from runtime.cpu.kernels.gemm.tile_types import (
    FLOATS,
    HALVES,
    INTS,
    LINES,
    ROW_BYTES,
    SUMS_ROW,
    TileTypes,
)
from spmd.shape import PrimitiveType


def add_finish(module: Module, types: TileTypes) -> None:
    """Add ``finish``(total, out, row, rows, columns, add, scale), which stores a block of sums in the result.

    It multiplies float sums by ``scale``, and adds them to the result if ``add``. A bf16 result is never added to.
    """
    f = internal_function(module, "finish", "ptr", "ptr", "i64", "i64", "i64", "i1", "float")
    total, out, row, rows, columns, add, scale = f.parameters
    adds, scales = splat(add, LINES), splat(scale, LINES)
    masks = [first_lanes(columns - n, LINES) for n in (0, LINES)]
    with f.loop(rows) as r:
        to, start = out.at(r * row), total.element(SUMS_ROW, r)
        kind = FLOATS if types.is_float else INTS
        sums = [start.at(n * ROW_BYTES).load(kind, align=64) for n in (0, 1)]
        if types.is_float:
            sums = [x.combined("fmul", scales) for x in sums]
        if types.result is PrimitiveType.BF16:
            _store_bf16(f, sums, to, masks[0].shuffled(range(2 * LINES), masks[1]))
        else:
            short = len(types.products) == 1
            old_masks = [mask.combined("and", adds) for mask in masks]
            _store_sums(f, sums, to, (masks, old_masks), None if short else add)
    f.finish()
    if types.result is PrimitiveType.BF16:
        module.add([carried_of_several(LINES, "internal")])


def _store_sums(
    f: FunctionWriter,
    sums: Sequence[Vector],
    to: Pointer,
    masks: tuple[Sequence[Vector], Sequence[Vector]],
    add: Bool | None,
) -> None:
    """Store two vectors, or add them to the result if ``add``. If that is None, the masks of the old values decide.

    ``masks`` are those of the elements to store and of the old values to add. A masked load with an empty mask fetches
    the line that is stored next, and waits for it. Short products, whose next line follows soon, are faster with such a
    load, and others are slower (measured).
    """
    kind = sums[0].type
    targets = [to.element(kind, n) for n in (0, 1)]

    def added() -> list[Vector]:
        old = [
            masked_load(target, kind, mask, 4)
            for target, mask in zip(targets, masks[1], strict=True)
        ]
        return [
            x.combined("fadd" if kind == FLOATS else "add", y)
            for x, y in zip(sums, old, strict=True)
        ]

    if add is None:
        new = added()
    else:
        with f.when(add) as adding:
            more = added()
        new = [adding.merged(x, y) for x, y in zip(more, sums, strict=True)]
    for target, x, mask in zip(targets, new, masks[0], strict=True):
        masked_store(target, x, mask, 4)


def _store_bf16(f: FunctionWriter, sums: Sequence[Vector], to: Pointer, mask: Vector) -> None:
    """Store two vectors of f32 as bf16, rounded to nearest, ties to even. A nan stays nan."""
    halves = []
    for x in sums:
        bits = cast(x, "bitcast", INTS)
        rounded = f.call(INTS, variant(CARRIED, LINES), bits)
        quiet = bits.combined("or", QUIET)
        chosen = selected(x.compared("fcmp uno", 0.0), quiet, rounded)
        halves.append(cast(chosen, "bitcast", HALVES))
    masked_store(to, halves[0].shuffled(range(1, 4 * LINES, 2), halves[1]), mask, 2)
