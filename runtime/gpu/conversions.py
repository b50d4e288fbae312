"""Library calls between conversions: arrays that a library does not take as they are get another type or layout first.

Conversions are PTX kernels. What they write lies in one workspace that all such steps of a device share.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.gpu.arena import ALIGNMENT
from runtime.gpu.codegen.launch import PtxLaunch
from runtime.gpu.planning import MakePtx
from runtime.program.kernel import Kernel
from runtime.program.records.copy import CopyKernel, PadKernel
from runtime.program.records.native_elementwise import NativeElementwiseKernel
from runtime.program.scalar_program import ElementSignature
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType


@dataclass(frozen=True)
class Conversion:
    """Conversion by ``kernel`` between an array of the program and dense ``view`` at byte ``start`` of a workspace.

    filled: the kernel puts zeros between the elements, and takes a zero as its second operand.
    """

    kernel: Kernel
    launches: tuple[PtxLaunch, ...]
    view: StridedView
    start: int
    filled: bool = False


@dataclass(frozen=True)
class ConvertedCall:
    """Library call for ``kernel``, with the conversions of those of its arrays for which there is one, else None."""

    kernel: Kernel
    operands: tuple[Conversion | None, ...]
    result: Conversion | None
    workspace_bytes: int


class Conversions:
    """Builder of conversions; it assigns offsets in a workspace.

    ``end``: bytes of the workspace. ``fails``: a conversion has no form in PTX, so the call cannot be made.
    """

    def __init__(self, make_ptx: MakePtx) -> None:
        self._make_ptx = make_ptx
        self.end = 0
        self.fails = False

    def between(
        self, view: StridedView, dense: StridedView, *, is_result: bool = False
    ) -> Conversion | None:
        """Return the conversion of ``view``, an array of the program, to ``dense``, or back for a result.

        Both have the same dimensions. Returns None, and sets ``fails``, if it has no form in PTX.
        """
        source, target = (dense, view) if is_result else (view, dense)
        kernel = _conversion(source.element_type, target.element_type)
        return self._made(kernel, (source,), target, dense)

    def padded(self, view: StridedView, dense: StridedView, kernel: PadKernel) -> Conversion | None:
        """Return the copy of ``view`` to the larger ``dense`` by ``kernel``, with zeros elsewhere; as ``between``.

        They must be of one type.
        """
        zero = StridedView(view.element_type, (), ())
        if view.element_type is not dense.element_type:
            self.fails = True
            return None
        return self._made(kernel, (view, zero), dense, dense)

    def _made(
        self,
        kernel: Kernel,
        operands: tuple[StridedView, ...],
        target: StridedView,
        dense: StridedView,
    ) -> Conversion | None:
        launches = self._make_ptx(kernel, operands, (target,), ())
        if launches is None:
            self.fails = True
            return None
        start, self.end = self.end, self.end + -(-dense.byte_size // ALIGNMENT) * ALIGNMENT
        return Conversion(kernel, launches, dense, start, filled=len(operands) > 1)


def _conversion(source: PrimitiveType, target: PrimitiveType) -> Kernel:
    if source is target:
        return CopyKernel()
    return NativeElementwiseKernel(ElementSignature(Opcode.CONVERT, (source,), target))
