"""Records of gather and scatter kernels."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.records.loop import OperandElements
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class IndexedWindows:
    """Windows of an array, the *indexed array*, and the computation of the index vectors at which they begin.

    array: number of the operand that is the indexed array, or of which a scatter's result is a copy. leaves: elements
    of operands for each index vector; their views have the dimensions of the index vectors. indices: program that
    computes an index vector; parameter n is the element of leaf n, result k is component k.

    batch: for each dimension of the index vectors, (dimension of the array of windows, dimension of the indexed array
    or None); the last one is a batching dimension of HLO. window: for each dimension along a window, (dimension of the
    array of windows, dimension of the indexed array). starts: for each component of an index vector, (dimension of the
    indexed array, largest start).
    """

    array: int
    leaves: tuple[OperandElements, ...]
    indices: ScalarProgram
    batch: tuple[tuple[int, int | None], ...]
    window: tuple[tuple[int, int], ...]
    starts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class GatherKernel(Kernel):
    """Gather: results[0] = the windows of the indexed array that begin at the index vectors.

    Starts are clamped so that each window is in bounds, as HLO defines it.
    """

    windows: IndexedWindows


@dataclass(frozen=True)
class ScatterKernel(Kernel):
    """Scatter: results[0] = the indexed array, with the windows of operand ``updates`` combined at the index vectors.

    reduction: combiner of an element and an update; None: the update replaces the element. A window that is not in
    bounds is skipped, as HLO defines it. Updates are applied in the order of the index vectors. results[0] may be the
    memory of the indexed array. accumulate: type in which elements are combined; if that is not the type of the
    elements, scratch[0] is a copy of the array in this type.
    """

    windows: IndexedWindows
    updates: int
    reduction: Reducer | None
    accumulate: PrimitiveType
