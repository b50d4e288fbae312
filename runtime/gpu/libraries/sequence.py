"""Sequences of PTX kernels and library calls that compute one kernel, with a workspace for intermediate arrays.

Libraries take arrays of certain types and layouts, and some work in place: kernels bring operands there and results
back. All sequences of a device share the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from runtime.gpu.arena import ALIGNMENT
from runtime.gpu.codegen.launch import ArgumentKind, KernelSource
from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.options import GpuOptions
from runtime.gpu.planning import MakePtx, Views
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.loop import LoopKernel, NativeElementwiseKernel
from runtime.program.scalar_program import ElementSignature, ScalarConstant, ScalarProgram
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class SequenceArray:
    """Array of a sequence: operand or result ``number`` of the kernel, or memory at byte ``number`` of the workspace.

    ``view``: of an operand or a result relative to the pointer that PTX kernels get (``anchored``), or another view of
    its elements.
    """

    kind: ArgumentKind
    number: int
    view: StridedView


@dataclass(frozen=True)
class PtxStage:
    """One kernel in PTX. A copy is left out if its operand turns out to be its result's memory."""

    kernel: Kernel
    launches: tuple[KernelSource, ...]
    operands: tuple[SequenceArray, ...]
    results: tuple[SequenceArray, ...]


@dataclass(frozen=True)
class CallStage:
    """One library call."""

    call: LibraryCall
    arrays: tuple[SequenceArray, ...]


Stage: TypeAlias = PtxStage | CallStage


@dataclass(frozen=True)
class LibrarySequence:
    """Sequence of ``stages``, which run in order."""

    stages: tuple[Stage, ...]
    workspace_bytes: int

    @property
    def can_be_captured(self) -> bool:
        """True if a CUDA graph may contain all of its calls."""
        return all(call.can_be_captured for call in self._calls)

    @property
    def waits(self) -> bool:
        """True if one of its calls may let the host wait for the stream."""
        return any(call.waits for call in self._calls)

    @property
    def _calls(self) -> list[LibraryCall]:
        return [stage.call for stage in self.stages if isinstance(stage, CallStage)]


class SequenceBuilder:
    """Builder of a sequence for arrays of given layouts. ``fails``: there is none, because a kernel has no PTX code."""

    def __init__(
        self, operands: Views, results: Views, make_ptx: MakePtx, options: GpuOptions
    ) -> None:
        self.operands = tuple(
            SequenceArray(ArgumentKind.OPERAND, n, view) for n, view in enumerate(operands)
        )
        self.results = tuple(
            SequenceArray(ArgumentKind.RESULT, n, view) for n, view in enumerate(results)
        )
        self.fails = False
        self.options = options
        self._make_ptx = make_ptx
        self._stages: list[Stage] = []
        self._unpacked: list[tuple[SequenceArray, SequenceArray]] = []
        self._end = 0

    def packed(self, result: SequenceArray) -> SequenceArray:
        """Return ``result``, or memory in the workspace that is copied to it at the end if it is not packed."""
        if result.view.is_packed:
            return result
        room = self.room(result.view.element_type, result.view.dims)
        self._unpacked.append((room, result))
        return room

    def room(
        self, kind: PrimitiveType, dims: Sequence[int], *, by_columns: bool = False
    ) -> SequenceArray:
        """Return new memory in the workspace: row-major, or with the last two dimensions exchanged in memory."""
        order = [*range(len(dims))]
        if by_columns:
            order[-2:] = order[-1], order[-2]
        shape = ArrayShape(kind, tuple(dims))
        return self.room_for(StridedView.dense_in_order(shape, tuple(order)))

    def room_for(self, view: StridedView) -> SequenceArray:
        """Return new memory in the workspace for a dense view."""
        start, self._end = self._end, self._end + -(-view.byte_size // ALIGNMENT) * ALIGNMENT
        return SequenceArray(ArgumentKind.WORKSPACE, start, view)

    def kernel(
        self,
        kernel: Kernel,
        operands: tuple[SequenceArray, ...],
        results: tuple[SequenceArray, ...],
    ) -> None:
        given, made = (tuple(array.view for array in own) for own in (operands, results))
        launches = self._make_ptx(kernel, given, made, ())
        if launches is None:
            self.fails = True
        else:
            self._stages.append(PtxStage(kernel, launches, operands, results))

    def copy(self, source: SequenceArray, target: SequenceArray) -> None:
        """Copy an array to one of the same sizes; elements of another type are converted."""
        if not target.view.num_elements:
            return
        given, made = source.view.element_type, target.view.element_type
        kernel: Kernel = CopyKernel()
        if given is not made:
            kernel = NativeElementwiseKernel(ElementSignature(Opcode.CONVERT, (given,), made))
        self.kernel(kernel, (source,), (target,))

    def zeros(self, target: SequenceArray) -> None:
        """Write zeros."""
        view = target.view
        program = ScalarProgram((), (ScalarConstant(view.element_type, 0),), (0,))
        from_first = StridedView(view.element_type, view.dims, view.strides)
        self.kernel(LoopKernel(view.dims, program, (), (from_first,)), (), (target,))

    def call(self, call: LibraryCall, *arrays: SequenceArray) -> None:
        self._stages.append(CallStage(call, arrays))

    def finished(self) -> LibrarySequence | None:
        """Return the sequence; None if it fails."""
        for room, result in self._unpacked:
            self.copy(room, result)
        return None if self.fails else LibrarySequence(tuple(self._stages), self._end)


#: Adds the stages of a kernel; False if there is no such sequence for the builder's arrays.
SequenceEmitter: TypeAlias = Callable[[Any, SequenceBuilder], bool]
_EMITTERS: Registry[type[Kernel], SequenceEmitter] = Registry("library sequence")

F = TypeVar("F", bound=SequenceEmitter)


def in_sequence(*kinds: type[Kernel]) -> Callable[[F], F]:
    """Return a decorator that registers the sequence of ``kinds``."""

    def decorator(emitter: F) -> F:
        for kind in kinds:
            _EMITTERS.add(kind, emitter)
        return emitter

    return decorator


def library_sequence(
    kernel: Kernel, operands: Views, results: Views, make_ptx: MakePtx, options: GpuOptions
) -> LibrarySequence | None:
    """Return the sequence for arrays of these layouts (``anchored``); None if there is none."""
    emitter = _EMITTERS.get(type(kernel))
    if emitter is None:
        return None
    builder = SequenceBuilder(operands, results, make_ptx, options)
    return builder.finished() if emitter(kernel, builder) else None
