"""Records of fusions with reductions along rows."""

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
    """Source of a leaf's elements: an operand, a reduction, a value per row, or a value cached by an earlier pass."""

    OPERAND = "operand"
    REDUCTION = "reduction"
    ROW = "row"
    CACHED = "kept"


@dataclass(frozen=True, slots=True)
class RowInput:
    """Meaning of one input number of a row fusion's graphs."""

    source: Source
    number: int


@dataclass(frozen=True, slots=True)
class Reduction:
    kind: ReductionKind
    element_type: PrimitiveType


@dataclass(frozen=True, slots=True)
class RowPass:
    """One pass over a row, and what is computed after it.

    elements, at all indices: operands of ``reductions``, values to be ``cached``, ``results``.
    inits, per row: initial values of ``reductions``. rows, per row: ``row_values``, ``row_results``.
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
    """Passes over rows. ``axes`` of ``dims`` run along a row, the others count the rows.

    results: each result's view over ``dims``, or over the rows.
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
        """The dimensions that count the rows."""
        return tuple(d for d in range(len(self.dims)) if d not in self.axes)

    @property
    def along_rows(self) -> bool:
        """True if neighbours in memory belong to one row, not to neighbouring rows."""
        wide = [d for d, size in enumerate(self.dims) if size > 1]
        return not wide or wide[-1] in self.axes

    @property
    def row_length(self) -> int:
        return math.prod(self.dims[d] for d in self.axes)

    @property
    def scratch(self) -> tuple[ArrayShape, ...]:
        """The scratch arrays: one row of each cached value."""
        return tuple(ArrayShape(kind, (self.row_length,)) for kind in self.cached)


RowLeaf: TypeAlias = OperandElements | Numbers | RowInput


@dataclass(frozen=True, slots=True)
class PassLeaves:
    """Sources of the leaves of a pass's three graphs; views are over all indices, or over the rows."""

    elements: tuple[RowLeaf, ...]
    inits: tuple[RowLeaf, ...]
    rows: tuple[RowLeaf, ...]


@dataclass(frozen=True)
class RowKernel(Kernel):
    """Kernel of a row fusion. scratch[n] holds value n that its passes keep for a row.

    along_rows: the innermost loop runs along a row; otherwise it runs over one element of neighbouring rows. The order
    of a sum depends on it.
    """

    fusion: RowFusion
    leaves: tuple[PassLeaves, ...]
    starts: tuple[StartsStage, ...]
    along_rows: bool
