"""Sequences of PTX kernels and library calls that compute one kernel, with a workspace for intermediate arrays.

Libraries require certain types and layouts, and some functions overwrite their operands. PTX kernels convert operands
into the workspace and results out of it. All sequences of a device share the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from runtime.gpu.arena import ALIGNMENT
from runtime.gpu.codegen.launch import ArgumentKind, KernelSource
from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.options import GpuOptions
from runtime.gpu.planning import MakeLaunches, Views
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel
from runtime.program.records.loop import LoopKernel, operation_loop
from runtime.program.scalar_program import ElementSignature, ScalarConstant, ScalarProgram
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry
from spmd.shape import ArrayShape, PrimitiveType


@dataclass(frozen=True)
class SequenceArray:
    """Array of a sequence: operand or result ``number`` of the kernel, or memory at byte ``number`` of the workspace.

    ``view`` is relative to the pointer that PTX kernels get: for operands and results the aligned one (``anchored``),
    for the workspace byte ``number``.
    """

    kind: ArgumentKind
    number: int
    view: StridedView


@dataclass(frozen=True)
class KernelStage:
    """PTX kernel of a sequence. A copy is skipped if its operand and its result are the same memory."""

    kernel: Kernel
    launches: tuple[KernelSource, ...]
    operands: tuple[SequenceArray, ...]
    results: tuple[SequenceArray, ...]


@dataclass(frozen=True)
class CallStage:
    """Library call of a sequence."""

    call: LibraryCall
    arrays: tuple[SequenceArray, ...]


Stage: TypeAlias = KernelStage | CallStage


@dataclass(frozen=True)
class LibrarySequence:
    """Stages that run in order and compute one kernel. They need ``workspace_bytes`` of workspace."""

    stages: tuple[Stage, ...]
    workspace_bytes: int

    @property
    def can_be_captured(self) -> bool:
        """True if a CUDA graph may contain all calls; otherwise one may block the host until the stream is idle."""
        calls = [stage.call for stage in self.stages if isinstance(stage, CallStage)]
        return all(call.can_be_captured for call in calls)


class SequenceBuilder:
    """Builder of a sequence for arrays of given layouts.

    ``fails`` is set if a kernel of the sequence has no PTX code, or by emitters; then there is no sequence.
    """

    def __init__(
        self, operands: Views, results: Views, make_launches: MakeLaunches, options: GpuOptions
    ) -> None:
        self.operands = tuple(
            SequenceArray(ArgumentKind.OPERAND, n, view) for n, view in enumerate(operands)
        )
        self.results = tuple(
            SequenceArray(ArgumentKind.RESULT, n, view) for n, view in enumerate(results)
        )
        self.fails = False
        self.options = options
        self._make_launches = make_launches
        self._stages: list[Stage] = []
        self._unpacked: list[tuple[SequenceArray, SequenceArray]] = []
        self._end = 0

    def packed(self, result: SequenceArray) -> SequenceArray:
        """Return ``result`` if it is packed, else packed memory in the workspace that the last stages copy to it."""
        if result.view.is_packed:
            return result
        room = self.room(result.view.element_type, result.view.dims)
        self._unpacked.append((room, result))
        return room

    def room(
        self, kind: PrimitiveType, dims: Sequence[int], *, by_columns: bool = False
    ) -> SequenceArray:
        """Return new memory in the workspace for a dense array of type ``kind`` and sizes ``dims``.

        It is row-major; by_columns: the matrices of the last two dimensions are column-major.
        """
        order = [*range(len(dims))]
        if by_columns:
            order[-2:] = order[-1], order[-2]
        shape = ArrayShape(kind, tuple(dims))
        return self.room_for(StridedView.dense_in_order(shape, tuple(order)))

    def room_for(self, view: StridedView) -> SequenceArray:
        """Return new memory in the workspace with the layout of the dense view ``view``, whose offset is 0."""
        start, self._end = self._end, self._end + -(-view.byte_size // ALIGNMENT) * ALIGNMENT
        return SequenceArray(ArgumentKind.WORKSPACE, start, view)

    def kernel(
        self,
        kernel: Kernel,
        operands: tuple[SequenceArray, ...],
        results: tuple[SequenceArray, ...],
    ) -> None:
        """Add a PTX kernel on these arrays; if ``kernel`` has no PTX code for them, set ``fails``."""
        launches = self.launches(kernel, operands, results)
        if launches is None:
            self.fails = True
        else:
            self._stages.append(KernelStage(kernel, launches, operands, results))

    def launches(
        self,
        kernel: Kernel,
        operands: tuple[SequenceArray, ...],
        results: tuple[SequenceArray, ...],
    ) -> tuple[KernelSource, ...] | None:
        """Return the launches of a PTX kernel on these arrays, or None if it has no PTX code for them."""
        given, made = (tuple(array.view for array in own) for own in (operands, results))
        return self._make_launches(kernel, given, made, ())

    def copy(self, source: SequenceArray, target: SequenceArray) -> None:
        """Add a copy of ``source`` to ``target``, which has equal sizes. Elements are converted to its type."""
        if not target.view.num_elements:
            return
        given, made = source.view.element_type, target.view.element_type
        kernel: Kernel = CopyKernel()
        if given is not made:
            signature = ElementSignature(Opcode.CONVERT, (given,), made)
            kernel = operation_loop(signature, (source.view,), target.view)
        self.kernel(kernel, (source,), (target,))

    def zeros(self, target: SequenceArray) -> None:
        """Add a kernel that writes zeros to all elements of ``target``."""
        view = target.view
        program = ScalarProgram((), (ScalarConstant(view.element_type, 0),), (0,))
        from_first = StridedView(view.element_type, view.dims, view.strides)
        self.kernel(LoopKernel(view.dims, program, (), (from_first,)), (), (target,))

    def call(self, call: LibraryCall, *arrays: SequenceArray) -> None:
        """Add a library call on ``arrays``."""
        self._stages.append(CallStage(call, arrays))

    def finished(self) -> LibrarySequence | None:
        """Return the sequence, or None if ``fails`` is set."""
        for room, result in self._unpacked:
            self.copy(room, result)
        return None if self.fails else LibrarySequence(tuple(self._stages), self._end)


#: Function that adds the stages of a kernel to a builder. It returns False if no sequence computes the kernel on the
#: builder's arrays.
SequenceEmitter: TypeAlias = Callable[[Any, SequenceBuilder], bool]
_EMITTERS: Registry[type[Kernel], SequenceEmitter] = Registry("library sequence")

#: Decorator that registers a function as the emitter of sequences for kernel classes.
in_sequence = _EMITTERS.register


def library_sequence(
    kernel: Kernel,
    operands: Views,
    results: Views,
    make_launches: MakeLaunches,
    options: GpuOptions,
) -> LibrarySequence | None:
    """Return the sequence that computes ``kernel``, or None if there is none.

    operands, results: layouts of the arrays relative to aligned pointers (``anchored``).
    """
    emitter = _EMITTERS.get(type(kernel))
    if emitter is None:
        return None
    builder = SequenceBuilder(operands, results, make_launches, options)
    return builder.finished() if emitter(kernel, builder) else None
