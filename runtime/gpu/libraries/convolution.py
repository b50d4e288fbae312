"""Convolutions by cuDNN: the call, and conversions of arrays whose type or layout cuDNN does not support."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

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
from runtime.program.strides import StridedView
from spmd.ops.window import WindowDimension
from spmd.shape import PrimitiveType

#: Alignment of arrays in bytes: cuDNN's kernels read vectors of this size.
ALIGNED = 16
#: Element types that cuDNN supports for all three arrays -> type in which it accumulates.
_SUMS = {
    PrimitiveType.F16: PrimitiveType.F32,
    PrimitiveType.BF16: PrimitiveType.F32,
    PrimitiveType.F32: PrimitiveType.F32,
    PrimitiveType.F64: PrimitiveType.F64,
}
#: Types whose values TF32 represents exactly, so that rounding operands to TF32 changes nothing.
_IN_TF32 = {PrimitiveType.F16, PrimitiveType.BF16}

#: First operand, second operand and result of a convolution.
Arrays: TypeAlias = tuple[SequenceArray, SequenceArray, SequenceArray]


@in_sequence(PanelConvolutionKernel, GroupConvolutionKernel, PhaseConvolutionKernel)
def convolution(kernel: ConvolutionKernel, builder: SequenceBuilder) -> bool:
    """Add the stages of ``kernel`` to ``builder``, as ``add_convolution`` does."""
    (first, second), (result,) = builder.operands, builder.results
    return add_convolution(kernel, (first, second, result), builder)


def add_convolution(kernel: ConvolutionKernel, arrays: Arrays, builder: SequenceBuilder) -> bool:
    """Add the stages of ``kernel`` on ``arrays``: conversions of arrays and the call of cuDNN.

    Returns False if cuDNN is disabled, or if no formulation of the convolution has paddings that cuDNN supports and
    arrays that one kernel converts.
    """
    if not builder.options.cudnn:
        return False
    for way in ways(kernel, [sequence_array.view for sequence_array in arrays]):
        library = library_convolution(kernel, way)
        if library is not None and _fits(library, way):
            _add(library, way, arrays, builder)
            return True
    return False


def _fits(library: LibraryConvolution, way: Way) -> bool:
    """Return whether every array that needs zeros inserted already has the call's element type.

    One kernel either inserts zeros or converts the type.
    """
    return all(array.kind is library.element_type for array in way.arrays.values() if array.zeros)


def _add(library: LibraryConvolution, way: Way, arrays: Arrays, builder: SequenceBuilder) -> None:
    """Add the conversions of both operands, the call, and the conversion of the result, where they are needed."""
    role = ORDER[way.direction][2]
    result = made = replace(arrays[2], view=way.arrays[role].view)
    if not suits(library, way, role):
        made = builder.room_for(_dense(library, way, role))
    builder.call(KernelCall(library), *operands_of(library, way, arrays, builder), made)
    if made is not result:
        builder.copy(made, result)


def operands_of(
    library: LibraryConvolution, way: Way, arrays: Arrays, builder: SequenceBuilder
) -> tuple[SequenceArray, SequenceArray]:
    """Return both operands as the call takes them. Their conversions are added to ``builder`` where they are needed."""
    taken, conversions = [], []
    for role, sequence_array in zip(ORDER[way.direction][:2], arrays, strict=False):
        source = replace(sequence_array, view=way.arrays[role].view)
        if suits(library, way, role):
            taken.append(source)
        else:
            taken.append(builder.room_for(_dense(library, way, role)))
            conversions.append((way.arrays[role], source, taken[-1]))
    for conversion in conversions:
        _bring(*conversion, builder)
    first, second = taken
    return first, second


def _dense(library: LibraryConvolution, way: Way, role: str) -> StridedView:
    """Return the layout in which the call takes the array ``role``."""
    array = way.arrays[role]
    return array.dense(role, library.element_type, channels_last=library.channels_last)


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


def suits(library: LibraryConvolution, way: Way, role: str) -> bool:
    """Return whether cuDNN can access the array ``role`` in place: its type, layout and alignment are the call's."""
    array = way.arrays[role]
    return (
        array.kind is library.element_type
        and array.lies(role, channels_last=library.channels_last)
        and array.view.offset % ALIGNED == 0
    )


def library_convolution(kernel: ConvolutionKernel, way: Way) -> LibraryConvolution | None:
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
    last, first = (
        all(way.arrays[own].lies(own, channels_last=channels_last) for own in ("image", "output"))
        for channels_last in (True, False)
    )
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
        channels_last=last or not first,
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
