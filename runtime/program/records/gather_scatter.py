"""Records of gathers and scatters."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.program.kernel import Kernel
from runtime.program.scalar_program import Reducer
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class IndexedWindows:
    """Correspondence of the dimensions of far (the indexed array), near (the windows) and the indices.

    batch: (near's dimension, that of the indices, far's, or None where far has none), one per dimension of the index
    vectors. window: (near's dimension, far's). starts: (far's dimension, largest start), by component of a vector.
    ``vector``: the indices' dimension that holds the components, or None where a vector is one index.
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
