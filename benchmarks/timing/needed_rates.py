"""The part of a calibration that a program's prediction needs: rates by type, and of its products and convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from launch.calibration.machine import CalibrationOptions
from runtime.device_program import DeviceProgram
from runtime.program.records.convolution import PanelConvolutionKernel, PhaseConvolutionKernel
from runtime.program.records.dot import DotKernel, SlicedProductKernel
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from runtime.program.thunks import KernelThunk, traverse
from spmd.shape import PrimitiveType

#: Kernels that make a product and more.
_WITH_PRODUCT = (ProductEpilogueKernel, SlicedProductKernel)
_CONVOLUTIONS = (PanelConvolutionKernel, PhaseConvolutionKernel)


def needed_by(programs: Iterable[DeviceProgram]) -> CalibrationOptions:
    """`spmd calibrate`'s own options, without the types that no program computes with. f32 is always there."""
    every = CalibrationOptions()
    thunks = [thunk for program in programs for thunk in traverse(program.thunks)]
    kernels = [thunk.kernel for thunk in thunks if isinstance(thunk, KernelThunk)]
    products = [x.product if isinstance(x, _WITH_PRODUCT) else x for x in kernels]
    dots = {(x.lhs, x.rhs, x.result) for x in products if isinstance(x, DotKernel)}
    convolved = {x.element_type for x in kernels if isinstance(x, _CONVOLUTIONS)}
    touched = {use.array.view.element_type for thunk in thunks for use in thunk.buffer_uses()}
    touched.add(PrimitiveType.F32)
    kinds = tuple(kind for kind in every.loops.types if kind in touched)
    dots |= {(kind,) * 3 for kind in kinds}  # a type's own rate
    return replace(
        every,
        loops=replace(every.loops, types=kinds),
        products=replace(
            every.products, types=tuple(types for types in every.products.types if types in dots)
        ),
        convolutions=replace(
            every.convolutions,
            types=tuple(kind for kind in every.convolutions.types if kind in convolved),
        ),
    )
