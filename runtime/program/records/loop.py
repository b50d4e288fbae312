"""Records of loops: a scalar program at every index of a space."""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from runtime.program.strides import Range, Shift, StridedView
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OperandElements:
    """Elements that a loop reads of operand ``operand``; ``view`` counts from the operand's first element."""

    operand: int
    view: StridedView
    shifts: tuple[Shift, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """Linear function of the indices: the value of an element is its offset in ``view``, counted in elements."""

    view: StridedView
    shifts: tuple[Shift, ...] = ()


LoopLeaf: TypeAlias = OperandElements | Numbers


@dataclass(frozen=True, slots=True)
class StartsStage:
    """Scalar program of start indices (s64) of dynamic slices. The stage before gives those of its leaves."""

    program: ScalarProgram
    leaves: tuple[LoopLeaf, ...]


@dataclass(frozen=True)
class LoopKernel(Kernel):
    """Loop over all indices of ``dims``: result i of ``program`` is written through the view ``results[i]``.

    The view is one of the kernel's result ``targets[i]``; without ``targets`` of result i. Parameter i of the program
    is the element of leaf i. A result may share the memory of an operand that is read at the same index at which the
    result is written. The last stage of ``starts`` gives the shifts of leaves and results; ``result_shifts`` is empty
    if no result is shifted. The loop runs over the indices in all ``ranges``, whose starts come from the last stage,
    too.
    """

    dims: tuple[int, ...]
    program: ScalarProgram
    leaves: tuple[LoopLeaf, ...]
    results: tuple[StridedView, ...]
    starts: tuple[StartsStage, ...] = ()
    result_shifts: tuple[tuple[Shift, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    targets: tuple[int, ...] = ()

    @property
    def written(self) -> tuple[int, ...]:
        """The number of the kernel's result that each result of the program is written to."""
        return self.targets or tuple(range(len(self.results)))


@dataclass(frozen=True)
class PiecesKernel(Kernel):
    """Loops one after the other, each of which writes its part of the results."""

    pieces: tuple[LoopKernel, ...]


@dataclass(frozen=True)
class UpdateKernel(Kernel):
    """Loops that write blocks of some results.

    updates: pairs (result, operand) that are equal outside the blocks. Such a result may share the operand's memory.
    """

    pieces: tuple[LoopKernel, ...]
    updates: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NativeElementwiseKernel(Kernel):
    """results[0] = the operation's value on operands of the result's sizes, which may be its memory."""

    signature: ElementSignature


@cache
def one_operation(signature: ElementSignature) -> ScalarProgram:
    count = len(signature.operands)
    return ScalarProgram(signature.operands, (ScalarOp(signature, tuple(range(count))),), (count,))
