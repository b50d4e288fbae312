"""LLVM IR that splits runs of f32 elements into bf16 parts: the full vectors of a run first, and then the remainder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.values import Pointer, Vector
from runtime.cpu.kernels.gemm.tile_types import INTS
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Runs:
    """``count`` runs of ``length`` elements.

    Runs begin ``source_step`` bytes apart in the source and ``target_step`` bytes apart in the target.
    """

    count: Int
    length: Int
    source_step: Int
    target_step: Int


#: Function of the addresses of target and source, the largest magnitudes so far, and the number of elements (None: as
#: many as it can). It writes code that splits the elements, and returns the new largest magnitudes.
Split: TypeAlias = Callable[[Pointer, Pointer, Vector, Int | None], Vector]


def split_runs(
    f: FunctionWriter,
    split: Split,
    pointers: tuple[Pointer, Pointer],
    runs: Runs,
    element: tuple[int, str],
    most: Pointer,
) -> None:
    """Write the code that splits ``runs`` from the second of ``pointers`` to the first.

    ``element`` is the number of elements that ``split`` takes at a time, and the LLVM type of an element of the target.
    ``most`` is the address of the largest magnitudes so far, which are updated.
    """
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
