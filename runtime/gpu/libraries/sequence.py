"""Sequences of PTX kernels and library calls that compute one kernel, with a workspace for what is between them.

Libraries take matrices of certain layouts and work in place: kernels bring operands there and results back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runtime.gpu.arena import ALIGNMENT
from runtime.gpu.codegen.launch import Held, PtxLaunch
from runtime.gpu.libraries.linalg_work import LibraryCall
from runtime.gpu.planning import MakePtx, Views
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class Place:
    """Array of a sequence: operand or result ``number`` of the kernel, or memory at byte ``number`` of the workspace.

    ``view``: of an operand or a result relative to the pointer that PTX kernels get (``anchored``).
    """

    held: Held
    number: int
    view: StridedView


@dataclass(frozen=True)
class PtxStage:
    """One kernel in PTX. A copy is left out if its operand turns out to be its result's memory."""

    kernel: Kernel
    launches: tuple[PtxLaunch, ...]
    operands: tuple[Place, ...]
    results: tuple[Place, ...]


@dataclass(frozen=True)
class CallStage:
    """One library call."""

    call: LibraryCall
    arrays: tuple[Place, ...]


Stage: TypeAlias = PtxStage | CallStage


@dataclass(frozen=True)
class LibrarySequence:
    """``stages`` in order."""

    stages: tuple[Stage, ...]
    workspace_bytes: int

    @property
    def can_be_captured(self) -> bool:
        """Whether a CUDA graph may contain all of its calls."""
        return all(call.can_be_captured for call in self._calls)

    @property
    def waits(self) -> bool:
        """Whether one of its calls may let the host wait for the stream."""
        return any(call.waits for call in self._calls)

    @property
    def _calls(self) -> list[LibraryCall]:
        return [stage.call for stage in self.stages if isinstance(stage, CallStage)]


class SequenceBuilder:
    """Builder of a sequence for arrays of given layouts. ``fails``: there is none, as if a kernel has no PTX form."""

    def __init__(self, operands: Views, results: Views, make_ptx: MakePtx) -> None:
        self.operands = tuple(Place(Held.OPERAND, n, view) for n, view in enumerate(operands))
        self.results = tuple(Place(Held.RESULT, n, view) for n, view in enumerate(results))
        self.fails = False
        self._make_ptx = make_ptx
        self._stages: list[Stage] = []
        self._unpacked: list[tuple[Place, Place]] = []
        self._end = 0

    def packed(self, result: Place) -> Place:
        """Return ``result``, or memory in the workspace that is copied to it at the end if it is not packed."""
        if result.view.is_packed:
            return result
        room = self.room(result.view.element_type, result.view.dims)
        self._unpacked.append((room, result))
        return room

    def room(self, kind: PrimitiveType, dims: Sequence[int], *, by_columns: bool = False) -> Place:
        """Return new memory in the workspace: row-major, or with the last two dimensions exchanged in memory."""
        shape = ArrayShape(kind, tuple(dims))
        order = [*range(shape.rank)]
        if by_columns:
            order[-2:] = order[-1], order[-2]
        view = StridedView.dense_in_order(shape, tuple(order))
        start, self._end = self._end, self._end + -(-view.byte_size // ALIGNMENT) * ALIGNMENT
        return Place(Held.WORKSPACE, start, view)

    def kernel(
        self, kernel: Kernel, operands: tuple[Place, ...], results: tuple[Place, ...]
    ) -> None:
        given, made = (tuple(place.view for place in own) for own in (operands, results))
        launches = self._make_ptx(kernel, given, made, ())
        if launches is None:
            self.fails = True
        else:
            self._stages.append(PtxStage(kernel, launches, operands, results))

    def copy(self, source: Place, target: Place) -> None:
        if target.view.num_elements:
            self.kernel(CopyKernel(), (source,), (target,))

    def call(self, call: LibraryCall, *arrays: Place) -> None:
        self._stages.append(CallStage(call, arrays))

    def finished(self) -> LibrarySequence | None:
        """Return the sequence; None if it fails."""
        for room, result in self._unpacked:
            self.copy(room, result)
        return None if self.fails else LibrarySequence(tuple(self._stages), self._end)
