"""Records of reductions by any scalar program, and of windows."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class ProgramReduceKernel(Kernel):
    """Reduction of the first half of the operands along ``axes``; the second half are the scalar initial values.

    The program maps n totals and n elements to n totals. It is applied to one element after the other.
    """

    program: ScalarProgram
    axes: tuple[int, ...]


@dataclass(frozen=True)
class ReduceWindowKernel(Kernel):
    """results[0] = init op (the elements of operands[0] that each window covers); operands[1] is the scalar init.

    Padding takes no part, nor do the gaps of a dilated base. Known reductions combine narrow floats in f32, a
    program takes total and element.
    """

    window: Window
    reduction: Reducer


@dataclass(frozen=True, slots=True)
class SelectedElements:
    """A window keeps element a when the next one is b and ``a direction b`` (GE, GT, LE or LT) holds.

    Floats narrower than f32 are compared and combined in f32, which is then the result's type.
    """

    kind: PrimitiveType
    direction: str
    reduction: ReductionKind


@dataclass(frozen=True)
class SelectAndScatterKernel(Kernel):
    """results[0] = operands[2] everywhere, to which each window's element of operands[1] is added where it selects.

    A window selects among the elements of operands[0] that it covers; one over padding alone selects none. The base is
    not dilated. scratch[0]: the results in f32, where the elements are narrower floats.
    """

    window: Window
    elements: SelectedElements
