"""Code that splits runs of elements into bf16 parts: whole vectors first, then what is left of a run.

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

FLOATS, WORDS, MASK = "<16 x float>", "<16 x i32>", "<16 x i1>"
#: Bytes: half a page, for beyond its end the processor itself does not look.
_AHEAD = 2048


@dataclass(frozen=True, slots=True)
class Runs:
    """``count`` runs of ``length`` elements: bytes from one to the next, in the source and in the target."""

    count: Int
    length: Int
    source_step: Int
    target_step: Int


#: Splits some elements at the second address to the first one, so many, or as many as a vector has. Given the largest
#: magnitudes before, it returns those with these elements.
Split: TypeAlias = Callable[[Pointer, Pointer, Vector, Int | None], Vector]


def split_runs(
    f: FunctionWriter,
    split: Split,
    places: tuple[Pointer, Pointer],
    runs: Runs,
    element: tuple[int, str],
    most: Pointer,
) -> None:
    """Split runs from the second of ``places`` to the first. element: how many a vector has, and their stored type."""
    width, word = element
    whole, left = runs.length & -width, runs.length & (width - 1)
    with f.repeat(0, *places, most.load(WORDS)) as each:
        r, to, source, most_before = each.values
        with f.when(whole.differs(0)) as some_whole, f.repeat(0, most_before) as vectors:
            i, largest = vectors.values
            larger = split(to.element(word, i), source.element("float", i), largest, None)
            vectors.again(i + width, larger, when=(i + width).ult(whole))
        most_here = some_whole.merged(larger, most_before)
        with f.when(left.differs(0)) as some_left:
            last = to.element(word, whole), source.element("float", whole)
            most_left = split(*last, most_here, left)
        most_after = some_left.merged(most_left, most_here)
        following = to.at(runs.target_step), source.at(runs.source_step), most_after
        each.again(r + 1, *following, when=(r + 1).ult(runs.count))
    most.store(most_after)


def parts_of(f: FunctionWriter, x0: Vector, x1: Vector) -> list[Vector]:
    """Return the parts of two vectors of f32: pairs of bf16, the first one's in the low halves."""
    made = f.append(f"call {SPLIT} @split({x0.type} {x0}, {x1.type} {x1})")
    return [
        Vector(f, WORDS, f.append(f"extractvalue {SPLIT} {made}, {part}")) for part in range(PARTS)
    ]


def larger_of(f: FunctionWriter, before: Vector, x0: Vector, x1: Vector) -> Vector:
    """Return the largest magnitudes so far, with those of two vectors."""
    larger: Vector = f.call(WORDS, "larger", before, x0, x1)
    return larger


def lanes(f: FunctionWriter, count: Int) -> Vector:
    """Return a mask of the first ``count`` lanes, none where that is negative."""
    mask: Vector = f.call(MASK, "lanes", count)
    return mask


def loaded(f: FunctionWriter, place: Pointer, mask: Vector) -> Vector:
    """Load the lanes of ``mask``, and zeros."""
    value: Vector = f.call(FLOATS, "loaded", place, mask)
    return value


def masked_store(f: FunctionWriter, x: Vector, place: Pointer, align: int, mask: Vector) -> None:
    name = f"@llvm.masked.store.v{x.lanes}{x.element}.p0"
    given = f"{x.type} {x}, ptr {place}, i32 {align}, {mask.type} {mask}"
    f.add(f"call void {name}({given})")


def fetch_ahead(*places: Pointer) -> None:
    """Fetch what is split some rounds after what lies at these places."""
    for place in places:
        ahead = place.at(_AHEAD)
        ahead.code.add(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")


def behind_each_other(to: Pointer, step: Int | int) -> list[Pointer]:
    """Return the places of the parts, ``step`` bytes from one to the next."""
    places = [to]
    for _ in range(1, PARTS):
        places.append(places[-1].at(step))
    return places
