"""Planning of convolutions for cuDNN: the call, and the conversions of arrays that it does not take as they are."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.buffers.types import ArrayView
from runtime.gpu.conversions import Conversion, Conversions, ConvertedCall
from runtime.gpu.libraries.convolution_call import LibraryConvolution
from runtime.gpu.libraries.convolution_ways import (
    ORDER,
    ConvolutionArray,
    ConvolutionKernel,
    Way,
    ways,
)
from runtime.gpu.planning import Planner
from spmd.ops.window import WindowDimension
from spmd.shape import PrimitiveType

#: Bytes: cuDNN's kernels read arrays in vectors of this size.
_ALIGNED = 16
#: Types in which cuDNN stores all three arrays, with the type of the sums.
_SUMS = {
    PrimitiveType.F16: PrimitiveType.F32,
    PrimitiveType.BF16: PrimitiveType.F32,
    PrimitiveType.F32: PrimitiveType.F32,
    PrimitiveType.F64: PrimitiveType.F64,
}
#: Types whose values TF32 holds, so that their products are exact in it.
_IN_TF32 = {PrimitiveType.F16, PrimitiveType.BF16}


@dataclass(frozen=True)
class PlannedConvolution:
    """``call`` on ``arrays``: the program's two operands and the result, with dimensions in the call's order."""

    call: ConvertedCall
    arrays: tuple[ArrayView, ...]


def planned_convolution(
    kernel: ConvolutionKernel, places: tuple[ArrayView, ...], planner: Planner
) -> PlannedConvolution | None:
    """Plan a call of cuDNN for x, w and the result at ``places``; None if a conversion has no form in PTX."""
    for way in ways(kernel, places):
        library = _library(kernel, way)
        if library is None:
            continue
        conversions = Conversions(planner.make_ptx)
        order = ORDER[way.direction]
        first, second, result = (
            _conversion(library, way.arrays[role], role, planner, conversions, number == 2)
            for number, role in enumerate(order)
        )
        if conversions.fails:
            continue
        call = ConvertedCall(library, (first, second), result, conversions.end)
        return PlannedConvolution(call, tuple(way.arrays[role].place for role in order))
    return None


def _library(kernel: ConvolutionKernel, way: Way) -> LibraryConvolution | None:
    """Return the record of the call; None for paddings that cuDNN has not."""
    sizes = {role: array.merged_dims(role) for role, array in way.arrays.items()}
    paddings = []
    for dim, image, output in zip(way.window, sizes["image"][2:], sizes["output"][2:], strict=True):
        padding = _padding(dim, image, output)
        if padding is None:
            return None
        paddings.append(padding)
    kinds = [way.arrays[role].kind for role in ORDER[way.direction]]
    kind, sums = kernel.element_type, kernel.element_type
    if len(set(kinds)) == 1 and kinds[0] in _SUMS:
        kind, sums = kinds[0], _SUMS[kinds[0]]
    in_tf32 = all(operand in _IN_TF32 for operand in kinds[:2])
    first = all(way.arrays[own].lies(own, channels_last=False) for own in ("image", "output"))
    return LibraryConvolution(
        way.direction,
        sizes["image"],
        sizes["filter"],
        sizes["output"],
        tuple(before for before, _ in paddings),
        tuple(after for _, after in paddings),
        tuple(dim.stride for dim in way.window),
        tuple(dim.window_dilation for dim in way.window),
        kind,
        sums,
        channels_last=not first,
        tf32=kind is PrimitiveType.F32 and (kernel.tf32 or in_tf32),
    )


def _conversion(
    library: LibraryConvolution,
    array: ConvolutionArray,
    role: str,
    planner: Planner,
    conversions: Conversions,
    is_result: bool,
) -> Conversion | None:
    """Return the conversion of an array; None if cuDNN takes it as it is."""
    start = array.place.slice.start_on(planner.rank) + array.place.view.offset
    kind, last = library.element_type, library.channels_last
    if array.kind is kind and array.lies(role, channels_last=last) and start % _ALIGNED == 0:
        return None
    (view,) = planner.anchored((array.place,))
    dense = array.dense(role, kind, channels_last=last)
    if array.zeros:
        return conversions.padded(view, dense, array.pad_kernel())
    return conversions.between(view, dense, is_result=is_result)


def _padding(dim: WindowDimension, image: int, output: int) -> tuple[int, int] | None:
    """Return the zeros before and after ``image`` elements for ``output`` results; None if either is negative.

    Elements that are left over, fewer than a stride, are not covered by any window.
    """
    before = dim.padding_low
    after = (output - 1) * dim.stride + dim.dilated_size - before - image
    if before < 0 or after <= -dim.stride:
        return None
    return before, max(after, 0)
