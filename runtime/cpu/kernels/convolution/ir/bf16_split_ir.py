"""LLVM IR that splits runs of elements into bf16 parts: full vectors first, then the remainder of a run.

The functions ``split``, ``larger``, ``loaded`` and ``lanes`` are those of tile_pieces_ir.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.values import Pointer, Vector
from runtime.cpu.kernels.convolution.ir.tile_pieces_ir import PARTS, SPLIT

FLOATS, INTS, MASK = "<16 x float>", "<16 x i32>", "<16 x i1>"
#: Prefetch distance in bytes: half a page, since the hardware does not prefetch across its end.
_AHEAD = 2048


@dataclass(frozen=True, slots=True)
class Runs:
    """``count`` runs of ``length`` elements, with strides in bytes in the source and in the target."""

    count: Int
    length: Int
    source_step: Int
    target_step: Int


#: Function(to, source, largest magnitudes so far, count or None for a full vector) that splits elements and returns the
#: new largest magnitudes.
Split: TypeAlias = Callable[[Pointer, Pointer, Vector, Int | None], Vector]


def split_runs(
    f: FunctionWriter,
    split: Split,
    pointers: tuple[Pointer, Pointer],
    runs: Runs,
    element: tuple[int, str],
    most: Pointer,
) -> None:
    """Split runs from the second of ``pointers`` to the first. element: vector length, and stored type."""
    width, word = element
    full, left = runs.length & -width, runs.length & (width - 1)
    with f.repeat(0, *pointers, most.load(INTS)) as each:
        r, to, source, most_before = each.values
        with f.when(full.differs(0)) as has_full, f.repeat(0, most_before) as vectors:
            i, largest = vectors.values
            larger = split(to.element(word, i), source.element("float", i), largest, None)
            vectors.again(i + width, larger, when=(i + width).ult(full))
        most_here = has_full.merged(larger, most_before)
        with f.when(left.differs(0)) as some_left:
            last = to.element(word, full), source.element("float", full)
            most_left = split(*last, most_here, left)
        most_after = some_left.merged(most_left, most_here)
        following = to.at(runs.target_step), source.at(runs.source_step), most_after
        each.again(r + 1, *following, when=(r + 1).ult(runs.count))
    most.store(most_after)


def parts_of(f: FunctionWriter, x0: Vector, x1: Vector) -> list[Vector]:
    """Return the parts of two vectors of f32: pairs of bf16, the first vector's in the low halves."""
    made = f.append(f"call {SPLIT} @split({x0.type} {x0}, {x1.type} {x1})")
    return [
        Vector(f, INTS, f.append(f"extractvalue {SPLIT} {made}, {part}")) for part in range(PARTS)
    ]


def larger_of(f: FunctionWriter, before: Vector, x0: Vector, x1: Vector) -> Vector:
    """Return the largest magnitudes so far, with those of two vectors."""
    larger: Vector = f.call(INTS, "larger", before, x0, x1)
    return larger


def lanes(f: FunctionWriter, count: Int) -> Vector:
    """Return a mask of the first ``count`` lanes, empty if that is negative."""
    mask: Vector = f.call(MASK, "lanes", count)
    return mask


def loaded(f: FunctionWriter, pointer: Pointer, mask: Vector) -> Vector:
    """Load the lanes of ``mask``, with zeros in the others."""
    value: Vector = f.call(FLOATS, "loaded", pointer, mask)
    return value


def masked_store(f: FunctionWriter, x: Vector, pointer: Pointer, align: int, mask: Vector) -> None:
    name = f"@llvm.masked.store.v{x.lanes}{x.element}.p0"
    given = f"{x.type} {x}, ptr {pointer}, i32 {align}, {mask.type} {mask}"
    f.add(f"call void {name}({given})")


def fetch_ahead(*pointers: Pointer) -> None:
    """Prefetch the elements _AHEAD bytes behind these addresses."""
    for pointer in pointers:
        ahead = pointer.at(_AHEAD)
        ahead.code.add(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")


def behind_each_other(to: Pointer, step: Int | int) -> list[Pointer]:
    """Return the addresses of the parts, ``step`` bytes apart."""
    pointers = [to]
    for _ in range(1, PARTS):
        pointers.append(pointers[-1].at(step))
    return pointers
