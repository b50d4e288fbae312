"""Record of a fusion with reductions along rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from runtime.fusion.row_fusion import RowFusion, RowInput
from runtime.program.kernel import Kernel
from runtime.program.records.loop import Numbers, OperandElements, StartsStage

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

    in_strides: the innermost loop runs along a row although elements of other rows lie in between.
    """

    fusion: RowFusion
    leaves: tuple[PassLeaves, ...]
    starts: tuple[StartsStage, ...]
    in_strides: bool = False

    @property
    def along_rows(self) -> bool:
        """True if the innermost loop runs along a row; otherwise it runs over one element of neighbouring rows.

        The order of a sum depends on it.
        """
        return self.in_strides or self.fusion.along_rows
