"""Records of gathers and scatters."""

from __future__ import annotations

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import Reducer
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class IndexedWindows:
    """Correspondence of the dimensions of the indexed array, of the array of windows, and of the indices.

    batch: (dimension of the windows, of the indices, of the array or None), one per dimension of the index vectors.
    window: (dimension of the windows, of the array). starts: (dimension of the array, largest start), by component of
    a vector. vector: the dimension of the indices that holds the components; None if a vector is one index.
    """

    batch: tuple[tuple[int, int, int | None], ...]
    window: tuple[tuple[int, int], ...]
    starts: tuple[tuple[int, int], ...]
    vector: int | None


@dataclass(frozen=True)
class GatherKernel(Kernel):
    """results[0] = the windows of operands[0] at operands[1]; starts are clamped so that each window fits."""

    windows: IndexedWindows


@dataclass(frozen=True)
class ScatterKernel(Kernel):
    """results[0] = operands[0], into which the windows operands[2] at operands[1] are written, or combined.

    A window that does not fit is left out. Updates come in the order of the index vectors. results[0] may be the memory
    of operands[0]. scratch[0]: a copy in ``accumulate``, where that is wider than the elements.
    """

    windows: IndexedWindows
    reduction: Reducer | None
    accumulate: PrimitiveType
