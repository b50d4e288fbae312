"""Work of row kernels, which pass over each row of a fusion with reductions: work per index and per row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from runtime.cpu.prediction.loops import (
    VECTOR_BYTES,
    access_seconds,
    loop_access,
    merged,
    padded_size,
    program_busy,
)
from runtime.cpu.prediction.work import WORK, Access, Busy, Work, element_busy
from runtime.program.records.loop import Numbers, OperandElements
from runtime.program.records.rows import PassLeaves, RowFusion, RowKernel, RowLeaf, RowPass, Source
from runtime.program.scalar_program import ScalarProgram
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk
from spmd.cost.traffic import stride_slowdown
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

#: Vector additions that take as long as adding up the lanes of a vector (139 kernels of rows of five programs: 2.6 ns).
ADDED_LANES = 16


@WORK.register(RowKernel)
def row_work(kernel: RowKernel, thunk: KernelThunk, machine: MachineDescription) -> Work:
    fusion = kernel.fusion
    passes = [
        _Pass(kernel, each, leaves, thunk)
        for each, leaves in zip(fusion.passes, kernel.leaves, strict=True)
    ]
    busy = sum((each.busy(machine) for each in passes), Busy())
    read = merged([access for each in passes for access in each.read()])
    accesses = (*read, *_written(fusion, thunk))
    begun = sum(each.access_seconds(machine) for each in passes)
    rows = _begins(kernel) * len(passes)
    return Work(accesses, busy.arithmetic + begun, rows=rows, divider=busy.divider)


def _begins(kernel: RowKernel) -> float:
    """Return how often a pass begins its innermost loop: once per row, or once per run of adjacent rows."""
    fusion = kernel.fusion
    return _rows(fusion) * (1.0 if kernel.along_rows else fusion.row_length / _inner(kernel))


def _inner(kernel: RowKernel) -> int:
    """Return the number of elements of the innermost loop: those of a row, or one of each of several rows."""
    fusion = kernel.fusion
    return fusion.row_length if kernel.along_rows else max(fusion.dims[max(fusion.counted)], 1)


def _rows(fusion: RowFusion) -> float:
    return math.prod(float(fusion.dims[d]) for d in fusion.counted)


@dataclass(frozen=True, slots=True)
class _Pass:
    """Pass ``each`` of a row kernel, with its leaves."""

    kernel: RowKernel
    each: RowPass
    leaves: PassLeaves
    thunk: KernelThunk

    @property
    def fusion(self) -> RowFusion:
        return self.kernel.fusion

    def busy(self, machine: MachineDescription) -> Busy:
        fusion, each = self.fusion, self.each
        rows = _rows(fusion)
        inside, outside = program_busy(
            each.elements, self._varies(each.elements, self.leaves.elements), machine
        )
        for number in each.reductions:
            kind = fusion.reductions[number].element_type
            inside += element_busy(Opcode.ADD, kind, kind, machine)
        for program in (each.inits, each.rows):
            outside += sum(program_busy(program, [True] * len(program.parameters), machine), Busy())
        widest = max((view.element_type.byte_size for view in self._views()), default=1)
        inner = _inner(self.kernel)
        # Rows of single elements are reduced without vectors: each element takes as long as a vector of them.
        scalar = self.kernel.along_rows and self._strided()
        computed = inner * VECTOR_BYTES // widest if scalar else padded_size(inner, widest)
        return inside.times(_begins(self.kernel) * computed) + outside.times(rows)

    def _views(self) -> list[StridedView]:
        """Return the views of the operands' elements that the innermost loop reads."""
        leaves = self.leaves.elements
        return [leaf.view for leaf in dict.fromkeys(leaves) if isinstance(leaf, OperandElements)]

    def access_seconds(self, machine: MachineDescription) -> float:
        """Return the seconds of beginning the innermost loops, and of elements that are read one by one.

        Along rows, the vectors of totals of each row become one number each in as many steps as ``ADDED_LANES``.
        """
        views, begins, alone = self._views(), _begins(self.kernel), self._strided()
        accesses = len(views) + self.kernel.along_rows * ADDED_LANES * len(self.each.reductions)
        return access_seconds(begins, accesses, alone * begins * _inner(self.kernel), machine)

    def _strided(self) -> int:
        """Return the number of operands whose elements the innermost loop reads one by one."""
        return sum(
            self._stride(view) not in (0, view.element_type.byte_size) for view in self._views()
        )

    def _stride(self, view: StridedView) -> int:
        """Return the stride of ``view`` in the innermost loop."""
        dims = self.fusion.dims
        if len(view.dims) != len(dims):
            return 0
        return view.strides[self._innermost()]

    def _innermost(self) -> int:
        """Return the innermost dimension that is longer than 1."""
        fusion = self.fusion
        looped = fusion.axes if self.kernel.along_rows else fusion.counted
        return max((d for d in looped if fusion.dims[d] > 1), default=len(fusion.dims) - 1)

    def _varies(self, program: ScalarProgram, leaves: Sequence[RowLeaf]) -> list[bool]:
        """Return, for each parameter of ``program``, whether it varies along the innermost loop."""
        inner = self._innermost()
        assert len(leaves) == len(program.parameters)
        return [self._moves(leaf, inner) for leaf in leaves]

    def _moves(self, leaf: RowLeaf, inner: int) -> bool:
        if isinstance(leaf, Numbers | OperandElements):
            return len(leaf.view.dims) == len(self.fusion.dims) and bool(leaf.view.strides[inner])
        return leaf.source is Source.CACHED or not self.kernel.along_rows

    def read(self) -> Iterator[Access]:
        """Yield the accesses to operands."""
        parts = (self.leaves.elements, self.leaves.inits, self.leaves.rows)
        for leaf in dict.fromkeys(leaf for part in parts for leaf in part):
            if isinstance(leaf, OperandElements):
                array = self.thunk.operands[leaf.operand]
                yield loop_access(array, leaf.view, _slowdown(self.fusion, leaf.view))


def _slowdown(fusion: RowFusion, view: StridedView) -> float:
    if len(view.dims) != len(fusion.dims):
        return 1.0
    wide = [d for d, size in enumerate(fusion.dims) if size > 1]
    return stride_slowdown(view.strides[wide[-1]], view.element_type.byte_size) if wide else 1.0


def _written(fusion: RowFusion, thunk: KernelThunk) -> Iterator[Access]:
    for view, array in zip(fusion.results, thunk.results, strict=True):
        yield loop_access(array, view, _slowdown(fusion, view))
