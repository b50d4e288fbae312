"""Convolutions by cuDNN: the call, and conversions of arrays whose type or layout cuDNN does not support."""

from __future__ import annotations

from runtime.gpu.libraries.call import KernelCall
from runtime.gpu.libraries.convolution_call import LibraryConvolution
from runtime.gpu.libraries.convolution_ways import (
    ORDER,
    ConvolutionArray,
    ConvolutionKernel,
    Way,
    ways,
)
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.program.records.convolution import (
    GroupConvolutionKernel,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from spmd.ops.window import WindowDimension
from spmd.shape import PrimitiveType

#: Alignment of arrays in bytes: cuDNN's kernels read vectors of this size.
_ALIGNED = 16
#: Element types that cuDNN supports for all three arrays -> type in which it accumulates.
_SUMS = {
    PrimitiveType.F16: PrimitiveType.F32,
    PrimitiveType.BF16: PrimitiveType.F32,
    PrimitiveType.F32: PrimitiveType.F32,
    PrimitiveType.F64: PrimitiveType.F64,
}
#: Types whose values TF32 represents exactly, so that rounding operands to TF32 changes nothing.
_IN_TF32 = {PrimitiveType.F16, PrimitiveType.BF16}


@in_sequence(PanelConvolutionKernel, GroupConvolutionKernel, PhaseConvolutionKernel)
def convolution(kernel: ConvolutionKernel, builder: SequenceBuilder) -> bool:
    """Add the stages of ``kernel`` to ``builder``: conversions of arrays and the call of cuDNN.

    Returns False if cuDNN is disabled, or if no formulation of the convolution has paddings that cuDNN supports and
    arrays that one kernel converts.
    """
    if not builder.options.cudnn:
        return False
    arrays = (*builder.operands, *builder.results)
    for way in ways(kernel, [sequence_array.view for sequence_array in arrays]):
        library = _library(kernel, way)
        if library is not None and _fits(library, way):
            _add(library, way, builder)
            return True
    return False


def _fits(library: LibraryConvolution, way: Way) -> bool:
    """Return whether every array that needs zeros inserted already has the call's element type.

    One kernel either inserts zeros or converts the type.
    """
    return all(array.kind is library.element_type for array in way.arrays.values() if array.zeros)


def _add(library: LibraryConvolution, way: Way, builder: SequenceBuilder) -> None:
    """Add the conversions of both operands, the call, and the conversion of the result, where they are needed."""
    given, taken = [], []
    for role, sequence_array in zip(
        ORDER[way.direction], (*builder.operands, *builder.results), strict=True
    ):
        array = way.arrays[role]
        given.append(SequenceArray(sequence_array.kind, sequence_array.number, array.view))
        if _suits(library, array, role):
            taken.append(given[-1])
        else:
            dense = array.dense(role, library.element_type, channels_last=library.channels_last)
            taken.append(builder.room_for(dense))
    for role, source, room in zip(ORDER[way.direction][:2], given, taken, strict=False):
        if room is not source:
            _bring(way.arrays[role], source, room, builder)
    builder.call(KernelCall(library), *taken)
    if taken[2] is not given[2]:
        builder.copy(taken[2], given[2])


def _bring(
    array: ConvolutionArray, source: SequenceArray, room: SequenceArray, builder: SequenceBuilder
) -> None:
    """Add a copy of ``source`` to ``room`` that converts it to the type and layout of ``room`` and inserts zeros."""
    if not array.zeros:
        builder.copy(source, room)
        return
    zero = builder.room(array.kind, ())
    builder.zeros(zero)
    builder.kernel(array.pad_kernel(), (source, zero), (room,))


def _suits(library: LibraryConvolution, array: ConvolutionArray, role: str) -> bool:
    """Return whether cuDNN can access ``array`` in place: its type, layout and alignment are those of the call."""
    return (
        array.kind is library.element_type
        and array.lies(role, channels_last=library.channels_last)
        and array.view.offset % _ALIGNED == 0
    )


def _library(kernel: ConvolutionKernel, way: Way) -> LibraryConvolution | None:
    """Return the record of the call for ``way``, or None if it needs a padding that cuDNN does not support."""
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


def _padding(dim: WindowDimension, image: int, output: int) -> tuple[int, int] | None:
    """Return the numbers of zeros before and after the ``image`` elements of a dimension with ``output`` results.

    Returns None if cuDNN cannot express them. Elements at the end that no window covers, fewer than a stride, count as
    padding 0.
    """
    before = dim.padding_low
    after = (output - 1) * dim.stride + dim.dilated_size - before - image
    if before < 0 or after <= -dim.stride:
        return None
    return before, max(after, 0)
