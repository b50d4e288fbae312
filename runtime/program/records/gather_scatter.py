"""Records of gather and scatter kernels."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import Reducer
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class IndexedWindows:
    """Correspondence between the dimensions of the indexed array, the array of windows, and the index array.

    batch: for each dimension that numbers the index vectors, (dimension of the array of windows, dimension of the index
    array, dimension of the indexed array or None); the last one is a batching dimension of HLO. window: for each
    dimension along a window, (dimension of the array of windows, dimension of the indexed array). starts: for each
    component of an index vector, (dimension of the indexed array, largest start). vector: dimension of the index array
    that holds the components of a vector, or None if an index vector is a single scalar.
    """

    batch: tuple[tuple[int, int, int | None], ...]
    window: tuple[tuple[int, int], ...]
    starts: tuple[tuple[int, int], ...]
    vector: int | None


@dataclass(frozen=True)
class GatherKernel(Kernel):
    """Gather: results[0] = the windows of operands[0] that begin at the index vectors operands[1].

    Starts are clamped so that each window is in bounds, as HLO defines it.
    """

    windows: IndexedWindows


@dataclass(frozen=True)
class ScatterKernel(Kernel):
    """Scatter: results[0] = operands[0], with the windows operands[2] combined at the index vectors operands[1].

    reduction: combiner of an element and an update; None: the update replaces the element. A window that is not in
    bounds is skipped, as HLO defines it. Updates are applied in the order of the index vectors. results[0] may be the
    memory of operands[0]. accumulate: type in which elements are combined; if that is not the type of the elements,
    scratch[0] is a copy of the array in this type.
    """

    windows: IndexedWindows
    reduction: Reducer | None
    accumulate: PrimitiveType
