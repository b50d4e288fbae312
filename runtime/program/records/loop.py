"""Records of loops: a scalar program at every index of a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from runtime.program.index_maps import Range, Shift
from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView


@dataclass(frozen=True, slots=True)
class OperandElements:
    """Elements that a loop reads of operand ``operand``; ``view`` counts from the operand's first element."""

    operand: int
    view: StridedView
    shifts: tuple[Shift, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """``view`` counts in ones: a line of numbers."""

    view: StridedView
    shifts: tuple[Shift, ...] = ()


LoopLeaf: TypeAlias = OperandElements | Numbers


@dataclass(frozen=True, slots=True)
class StartsStage:
    """``program`` gives starts of dynamic slices (s64) of scalars, which start where the stage before says."""

    program: ScalarProgram
    leaves: tuple[LoopLeaf, ...]


@dataclass(frozen=True)
class LoopKernel(Kernel):
    """For all indices of ``dims``: result i, seen as ``results[i]`` from its first element, = result i of ``program``.

    Parameter i of the program is the element of leaf i. A result may be an operand's memory where the elements that it
    is read for are written at the same index. Leaves and results are shifted by what the last stage of ``starts``
    gives; ``result_shifts`` is empty where no result is. Of the indices only those in all ``ranges``, whose starts the
    last stage gives, too.
    """

    dims: tuple[int, ...]
    program: ScalarProgram
    leaves: tuple[LoopLeaf, ...]
    results: tuple[StridedView, ...]
    starts: tuple[StartsStage, ...] = ()
    result_shifts: tuple[tuple[Shift, ...], ...] = ()
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True)
class PiecesKernel(Kernel):
    """Loops one after the other, each of which writes its part of the results."""

    pieces: tuple[LoopKernel, ...]


@dataclass(frozen=True)
class UpdateKernel(Kernel):
    """Loops that write blocks of some results; ``updates``: pairs (result, operand) that are alike elsewhere.

    Such a result may be the operand's memory.
    """

    pieces: tuple[LoopKernel, ...]
    updates: tuple[tuple[int, int], ...]
