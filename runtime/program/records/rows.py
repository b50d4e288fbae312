"""Records of row fusions: fused computations with reductions along rows."""

from __future__ import annotations

import math
from enum import Enum
from typing import TypeAlias

from runtime.program.kernel import Kernel
from runtime.program.records.loop import Numbers, OperandElements, StartsStage
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType


class Source(Enum):
    """Source of the elements of a leaf.

    OPERAND: an operand of the kernel. REDUCTION: the result of a reduction. ROW: a value that was computed for each
    row. CACHED: a value that an earlier pass computed for each element of the row.
    """

    OPERAND = "operand"
    REDUCTION = "reduction"
    ROW = "row"
    CACHED = "kept"


@dataclass(frozen=True, slots=True)
class RowInput:
    """Input of the programs of a row fusion: number ``number`` among the values of ``source``."""

    source: Source
    number: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """Reduction along a row of elements of type ``element_type``."""

    kind: ReductionKind
    element_type: PrimitiveType


@dataclass(frozen=True, slots=True)
class RowPass:
    """One pass over a row, and the computation per row that follows.

    elements: program for each element; its results are the operands of ``reductions``, then the values ``cached``, then
    elements of ``results``. inits: program for each row; its results are the initial values of the reductions. rows:
    program for each row after its reductions; its results are ``row_values``, then elements of ``row_results``. The
    fields are numbers of the fusion's reductions, cached values, results and row values.
    """

    elements: ScalarProgram
    reductions: tuple[int, ...]
    cached: tuple[int, ...]
    results: tuple[int, ...]
    inits: ScalarProgram
    rows: ScalarProgram
    row_values: tuple[int, ...]
    row_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowFusion:
    """Computation in ``passes`` over the rows of an index space of sizes ``dims``.

    axes: dimensions along a row; the other dimensions number the rows. row_values, cached: types of the values per row
    and of the cached values. results: view of each result over all dimensions, or over those that number the rows.
    """

    dims: tuple[int, ...]
    axes: tuple[int, ...]
    passes: tuple[RowPass, ...]
    reductions: tuple[Reduction, ...]
    row_values: tuple[PrimitiveType, ...]
    cached: tuple[PrimitiveType, ...]
    results: tuple[StridedView, ...]

    @property
    def counted(self) -> tuple[int, ...]:
        """Dimensions that number the rows."""
        return tuple(d for d in range(len(self.dims)) if d not in self.axes)

    @property
    def along_rows(self) -> bool:
        """True if the innermost dimension larger than 1 is along a row, so that rows are contiguous in dense arrays."""
        wide = [d for d, size in enumerate(self.dims) if size > 1]
        return not wide or wide[-1] in self.axes

    @property
    def row_length(self) -> int:
        """Number of elements of a row."""
        return math.prod(self.dims[d] for d in self.axes)

    def spread(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides over all dimensions of a view that is over all, or over those that number the rows."""
        if len(strides) == len(self.dims):
            return strides
        steps = dict(zip(self.counted, strides, strict=True))
        return tuple(steps.get(d, 0) for d in range(len(self.dims)))

    @property
    def scratch(self) -> tuple[ArrayShape, ...]:
        """Shapes of the scratch arrays: one row of each cached value."""
        return tuple(ArrayShape(kind, (self.row_length,)) for kind in self.cached)


RowLeaf: TypeAlias = OperandElements | Numbers | RowInput


@dataclass(frozen=True, slots=True)
class PassLeaves:
    """Leaves of the three programs of a pass, which are the programs' parameters.

    Views of operands are over all dimensions, or over those that number the rows.
    """

    elements: tuple[RowLeaf, ...]
    inits: tuple[RowLeaf, ...]
    rows: tuple[RowLeaf, ...]


@dataclass(frozen=True)
class RowKernel(Kernel):
    """Kernel of a row fusion. scratch[n] holds cached value n of the current row.

    leaves: those of each pass. starts: stages that compute run-time starts of the leaves' shifts. along_rows: the
    innermost loop runs along a row; otherwise it runs over the same element of adjacent rows. The order of a sum
    depends on this choice.
    """

    fusion: RowFusion
    leaves: tuple[PassLeaves, ...]
    starts: tuple[StartsStage, ...]
    along_rows: bool
