"""Records of loop kernels, which run a scalar program at every index of an index space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from runtime.program.strides import Range, Shift, StridedView
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OperandElements:
    """Elements of operand ``operand`` that a loop reads.

    ``view`` is relative to the first element of the operand; ``shifts`` are run-time offsets.
    """

    operand: int
    view: StridedView
    shifts: tuple[Shift, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """Affine function of the indices, such as an iota, of type s64.

    The value at an index is ``view.offset`` plus the index times ``view.strides``, plus the run-time ``shifts``.
    """

    view: StridedView
    shifts: tuple[Shift, ...] = ()


LoopLeaf: TypeAlias = OperandElements | Numbers


@dataclass(frozen=True, slots=True)
class StartsStage:
    """Stage of the computation of run-time starts: a scalar program whose s64 results are start indices.

    The results of the previous stage are the starts that the shifts of ``leaves``, the program's parameters, name.
    """

    program: ScalarProgram
    leaves: tuple[LoopLeaf, ...]


@dataclass(frozen=True)
class LoopKernel(Kernel):
    """Loop over all indices of ``dims`` that are in all of ``ranges``, which runs ``program`` at each index.

    Parameter i of the program is the element of leaf i at the index. Result i of the program is written through the
    view ``results[i]``, which is relative to the first element of the kernel's result ``targets[i]``, or i if
    ``targets`` is empty. starts: stages that compute run-time starts; the last one computes those of the shifts of
    leaves, of ``result_shifts`` (empty if no result is shifted) and of the ranges. A result may share the memory of an
    operand if each element is read only at the index at which it is written.
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
        """For each result of the program, the number of the kernel's result to which it is written."""
        return self.targets or tuple(range(len(self.results)))


@dataclass(frozen=True)
class PiecesKernel(Kernel):
    """Loops that run one after another and write different parts of the results."""

    pieces: tuple[LoopKernel, ...]


@dataclass(frozen=True)
class UpdateKernel(Kernel):
    """Loops that overwrite blocks of copies of operands, as fused dynamic-update-slices do.

    updates: pairs (result, operand): the result is equal to the operand outside the blocks that the loops ``pieces``
    write, and may share its memory.
    """

    pieces: tuple[LoopKernel, ...]
    updates: tuple[tuple[int, int], ...]


@cache
def one_operation(signature: ElementSignature) -> ScalarProgram:
    """Return the program whose parameters are the operands of one operation, and whose result is its result."""
    count = len(signature.operands)
    return ScalarProgram(signature.operands, (ScalarOp(signature, tuple(range(count))),), (count,))


def operation_loop(
    signature: ElementSignature, operands: Sequence[StridedView], result: StridedView
) -> LoopKernel:
    """Return the loop of one operation on arrays that lie as ``operands``, all of the sizes of ``result``."""

    def relative(view: StridedView) -> StridedView:
        return StridedView(view.element_type, view.dims, view.strides)

    leaves = tuple(OperandElements(n, relative(view)) for n, view in enumerate(operands))
    return LoopKernel(result.dims, one_operation(signature), leaves, (relative(result),))
