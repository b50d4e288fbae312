"""Functions of scalars, such as reducers: whether they can be applied to arrays, and their form in wider types."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.literal import Literal
from spmd.ops.attrs import ConstantAttrs
from spmd.ops.opdef import definition
from spmd.shape import ArrayShape, Shape, TupleShape

_LEAVES = (Opcode.PARAMETER, Opcode.CONSTANT)
#: Opcodes whose results need no rounding.
_EXACT = frozenset(
    {
        *_LEAVES,
        Opcode.ABS,
        Opcode.CLAMP,
        Opcode.COPY,
        Opcode.MAXIMUM,
        Opcode.MINIMUM,
        Opcode.NEGATE,
        Opcode.SELECT,
    }
)


def is_elementwise(function: Iterable[HloInstruction]) -> bool:
    """Return whether the function, applied to arrays, does to each element what it does to scalars."""
    return all(
        (x.opcode in _LEAVES or (definition(x.opcode).elementwise and not x.called_computations))
        and not x.control_predecessors
        and not x.control_successors
        for x in function
    )


def widened(function: HloComputation, module: HloModule) -> HloComputation | None:
    """Return the function with f32 for all narrower floats, in ``module`` before its future callers.

    Returns None if it does not round to such a type, or is not elementwise apart from a tuple of its results.
    """
    body = [x for x in function.post_order() if x is not function.root or not _is_tuple(x)]
    if not is_elementwise(body) or any(map(_is_about_bits, body)):
        return None
    if all(x.opcode in _EXACT for x in body if _is_narrow(x)):
        return None
    result = module.new_computation(f"wide_{function.name}")
    module.computations.insert(0, module.computations.pop())
    made: dict[HloInstruction, HloInstruction] = {}
    for x in function.post_order():
        operands = [made[operand] for operand in x.operands]
        shape = _wide(x.shape)
        if x.opcode is Opcode.CONVERT and operands[0].shape == shape:
            made[x] = operands[0]
            continue
        made[x] = result.add(x.clone(shape, operands, attrs=_wide_attrs(x)))
    result.root = made[function.root]
    return result


def _is_tuple(x: HloInstruction) -> bool:
    return x.opcode is Opcode.TUPLE


def _is_narrow(x: HloInstruction) -> bool:
    return x.array_shape.element_type is not x.array_shape.element_type.accumulator


def _is_about_bits(x: HloInstruction) -> bool:
    return x.opcode is Opcode.BITCAST_CONVERT and any(map(_is_narrow, (x, *x.operands)))


def _wide(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_wide, shape.elements)))
    if not isinstance(shape, ArrayShape):
        return shape
    return ArrayShape(shape.element_type.accumulator, shape.dims)


def _wide_attrs(x: HloInstruction) -> ConstantAttrs | None:
    """Return the attributes that differ: those of a constant of a narrow type; None otherwise."""
    if x.opcode is not Opcode.CONSTANT or not _is_narrow(x):
        return None
    literal = x.attrs_as(ConstantAttrs).literal
    return None if literal is None else ConstantAttrs(Literal.of(_wide(x.shape), literal.value()))
