"""Records of reductions by arbitrary scalar programs, of reduce-window and of select-and-scatter."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class ProgramReduceKernel(Kernel):
    """Variadic reduction of operands[:n] along ``axes``, with scalar initial values operands[n:].

    ``program`` maps n totals and n elements to n totals. On a CPU it is applied to one element after another.
    """

    program: ScalarProgram
    axes: tuple[int, ...]


@dataclass(frozen=True)
class ReduceWindowKernel(Kernel):
    """Reduce-window: each element of results[0] is the reduction of the elements of operands[0] in one window.

    The reduction starts with the scalar operands[1]. Padding and the holes of base dilation are skipped. A
    ReductionKind accumulates floats narrower than f32 in f32; a ScalarProgram maps total and element to a total in the
    type of the elements.
    """

    window: Window
    reduction: Reducer


@dataclass(frozen=True, slots=True)
class SelectedElements:
    """Selection and scatter functions of select-and-scatter for elements of type ``kind``.

    direction: a window keeps its selected element a instead of the next element b if ``a direction b`` holds, where
    direction is GE, GT, LE or LT. reduction: combines the selected values. Floats narrower than f32 are compared and
    combined in f32.
    """

    kind: PrimitiveType
    direction: str
    reduction: ReductionKind


@dataclass(frozen=True)
class SelectAndScatterKernel(Kernel):
    """Select-and-scatter: results[0] is filled with the scalar operands[2], then combined with values of operands[1].

    Each window selects one of the elements of operands[0] that it covers, and the window's element of operands[1] is
    combined with the result at that index. A window that covers only padding selects none. There is no base dilation.
    scratch[0]: the result in f32, if the elements are narrower floats.
    """

    window: Window
    elements: SelectedElements
