"""The shape of an instruction that is written without one: what is inferred, with layouts and bounds as XLA gives them.

    a = f32[<=4,6]{0,1} parameter(0)
    b = negate(a)                        f32[<=4,6]{0,1}: as the operand
    c = transpose(a), dimensions={1,0}   f32[6,<=4]{1,0}: permuted
    d = tuple(a, b)                      its parts as they are

Where XLA sets the default layout, none is set here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DimensionsAttrs, TupleIndexAttrs
from spmd.ops.elementwise_ops import WITH_ACCURACY, WITHOUT_ATTRIBUTES
from spmd.ops.inference import infer_shape
from spmd.shape import ArrayShape, Layout, Shape, TupleShape, as_array, as_tuple

#: Opcodes whose result has the shape of operand 0.
_IS_OPERAND = frozenset({Opcode.ADD_DEPENDENCY, Opcode.DOMAIN, Opcode.OPT_BARRIER, Opcode.WHILE})
#: Opcodes whose result has the shape of the (first) callee's result.
_IS_ROOT = frozenset({Opcode.CALL, Opcode.CONDITIONAL})
#: Opcodes whose result is an array with the layout of one operand: the first, unless ``_MODEL`` names another.
_LIKE_OPERAND = frozenset(
    {
        *WITH_ACCURACY,
        *WITHOUT_ATTRIBUTES,
        Opcode.BATCH_NORM_INFERENCE,
        Opcode.CHOLESKY,
        Opcode.COMPARE,
        Opcode.FFT,
        Opcode.REVERSE,
        Opcode.SELECT_AND_SCATTER,
        Opcode.SET_DIMENSION_SIZE,
        Opcode.SORT,
        Opcode.TRIANGULAR_SOLVE,
    }
)
_ELEMENT_SIZE = re.compile(r"E\(\d+\)")
_BEHIND_ELEMENT_SIZE = re.compile(r"(?=S\(|SC\(|M\()|$")
_MODEL = {Opcode.CLAMP: 1, Opcode.TRIANGULAR_SOLVE: 1}


def left_out_shape(instruction: HloInstruction) -> Shape | None:
    """Return the shape of an instruction whose text leaves it out; None if it may not be left out.
    Raises ShapeError.
    """
    opcode = instruction.opcode
    if opcode is Opcode.BROADCAST:
        return _broadcast(instruction)
    shape = infer_shape(instruction)
    if shape is None:
        return None
    if opcode in _IS_OPERAND:
        return instruction.operand(0).shape
    if opcode in _IS_ROOT:
        return instruction.called_computations[0].root.shape
    if opcode is Opcode.GET_TUPLE_ELEMENT:
        index = instruction.attrs_as(TupleIndexAttrs).index
        return as_tuple(instruction.operand(0).shape).elements[index]
    if opcode is Opcode.TUPLE or (opcode is Opcode.SORT and isinstance(shape, TupleShape)):
        return TupleShape(tuple(x.shape for x in instruction.operands))
    return _array(instruction, shape) if isinstance(shape, ArrayShape) else shape


def _broadcast(instruction: HloInstruction) -> Shape:
    """Return the shape whose major sizes are the dimensions, as XLA reads them; its verifier accepts that for a scalar
    only.
    """
    operand = as_array(instruction.operand(0).shape)
    sizes = instruction.attrs_as(DimensionsAttrs).dimensions
    return ArrayShape(operand.element_type, (*sizes, *operand.dims))


def _array(instruction: HloInstruction, shape: ArrayShape) -> ArrayShape:
    opcode = instruction.opcode
    if opcode in _LIKE_OPERAND:
        model = as_array(instruction.operand(_MODEL.get(opcode, 0)).shape)
        if model.rank != shape.rank:
            return shape
        layout = model.layout
        if model.element_type is not shape.element_type:
            layout = _resized(layout, shape)
        like = replace(shape, layout=layout, dynamic=model.dynamic)
        return _bounded(instruction, like) if opcode is Opcode.SET_DIMENSION_SIZE else like
    if opcode is Opcode.TRANSPOSE:
        return _transposed(instruction, shape)
    if opcode is Opcode.REDUCE_WINDOW:  # XLA takes the type from the initial value
        return shape.with_element_type(as_array(instruction.operand(1).shape).element_type)
    if opcode is Opcode.REDUCE:
        reduced = instruction.attrs_as(DimensionsAttrs).dimensions
        flags = as_array(instruction.operand(0).shape).dynamic
        return _marked(shape, tuple(on for i, on in enumerate(flags) if i not in reduced))
    if opcode is Opcode.CONCATENATE:
        all_flags = [
            as_array(x.shape).dynamic or (False,) * shape.rank for x in instruction.operands
        ]
        return _marked(shape, tuple(map(any, zip(*all_flags, strict=True))))
    return shape


def _resized(layout: Layout | None, shape: ArrayShape) -> Layout | None:
    """Return the layout with the element size of ``shape``, which only types of less than a byte have."""
    before = layout or Layout.default(shape.rank)
    suffix = _ELEMENT_SIZE.sub("", before.suffix)
    if (bits := shape.element_type.bits) < 8:
        suffix = _BEHIND_ELEMENT_SIZE.sub(f"E({bits})", suffix, count=1)
    return layout if layout is None and not suffix else replace(before, suffix=suffix)


def _transposed(instruction: HloInstruction, shape: ArrayShape) -> ArrayShape:
    """Return the layout with which the transpose is a bitcast. A layout that is no permutation is left
    to the verifier.
    """
    operand = as_array(instruction.operand(0).shape)
    permutation = instruction.attrs_as(DimensionsAttrs).dimensions
    result_dim = {dim: i for i, dim in enumerate(permutation)}
    before = operand.layout or Layout.default(operand.rank)
    layout = replace(
        before, minor_to_major=tuple(result_dim.get(i, i) for i in before.minor_to_major)
    )
    flags = operand.dynamic and tuple(operand.dynamic[dim] for dim in permutation)
    return replace(shape, layout=layout if shape.rank else None, dynamic=flags)


def _bounded(instruction: HloInstruction, shape: ArrayShape) -> ArrayShape:
    (dim,) = instruction.attrs_as(DimensionsAttrs).dimensions
    flags = shape.dynamic or (False,) * shape.rank
    return _marked(shape, tuple(on or i == dim for i, on in enumerate(flags)))


def _marked(shape: ArrayShape, flags: tuple[bool, ...]) -> ArrayShape:
    return replace(shape, dynamic=flags if any(flags) else ())
