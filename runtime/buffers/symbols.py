"""What values are, by name: the buffer checker's own reading of HLO dataflow. Shares nothing with buffer assignment.

An array leaf has a *meaning*: the symbols by which memory may hold it. An operation that computes gives a new symbol;
one whose elements all come from its operand (broadcast, slice, reshape, ...) may also be held as its operand is.
"""

from __future__ import annotations

from typing import TypeAlias, Union

import numpy as np

from spmd.hlo import HloInstruction, Opcode
from spmd.literal import NDArray
from spmd.ops.attrs import ConstantAttrs, IotaAttrs
from spmd.shape import ArrayShape, Shape, ShapeIndex, TupleShape

#: Equal when the values are: (instruction, leaf, activation), or the contents of a constant.
Symbol: TypeAlias = tuple[object, ...]
Meaning: TypeAlias = tuple[Symbol, ...]
#: Meanings of a value's array leaves, nested as its shape; None for tokens.
Meanings: TypeAlias = Union["Leaf", tuple["Meanings", ...], None]

#: Which activation of a computation: calls and (loop, trip) pairs from the entry down.
Context: TypeAlias = tuple[object, ...]


class Leaf:
    """The meaning of one array."""

    __slots__ = ("symbols",)

    def __init__(self, symbols: Meaning) -> None:
        self.symbols = symbols


#: Every element of the result is an element of the first operand.
REARRANGING = frozenset(
    {
        Opcode.ADD_DEPENDENCY,
        Opcode.BITCAST,
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.COPY,
        Opcode.DOMAIN,
        Opcode.IMAG,
        Opcode.REAL,
        Opcode.RESHAPE,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)


def own_meanings(
    instruction: HloInstruction, context: Context, shape: Shape, index: ShapeIndex = ()
) -> Meanings:
    """New symbols for everything of ``shape`` that ``instruction`` computes."""
    if isinstance(shape, TupleShape):
        return tuple(
            own_meanings(instruction, context, element, (*index, i))
            for i, element in enumerate(shape.elements)
        )
    if not isinstance(shape, ArrayShape):
        return None
    return Leaf(((instruction.name, index, context),))


def rearranged(instruction: HloInstruction, context: Context, operand: Meanings) -> Meanings:
    assert isinstance(operand, Leaf)
    own = own_meanings(instruction, context, instruction.shape)
    assert isinstance(own, Leaf)
    return Leaf((*own.symbols, *operand.symbols))


def is_rearranging(instruction: HloInstruction) -> bool:
    if instruction.opcode is Opcode.CONVERT:
        source = instruction.operand(0).array_shape.element_type
        return source is instruction.array_shape.element_type
    return instruction.opcode in REARRANGING


def constant_symbol(array: NDArray) -> Symbol:
    """By contents; an array of one repeated value is that value."""
    flat = np.ascontiguousarray(array).reshape(-1)
    rows = flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize)
    if flat.size and (rows == rows[:1]).all():
        return ("constant", flat.dtype.str, flat.dtype.name, rows[0].tobytes())
    return ("constant", flat.dtype.str, flat.dtype.name, rows.tobytes())


def constant_meaning(instruction: HloInstruction) -> Leaf:
    """Of a constant or an iota (which a line of numbers can hold)."""
    if instruction.opcode is Opcode.IOTA:
        shape = instruction.array_shape
        size = shape.dims[instruction.attrs_as(IotaAttrs).dimension]
        return Leaf((constant_symbol(np.arange(size).astype(shape.element_type.numpy)),))
    literal = instruction.attrs_as(ConstantAttrs).literal
    assert literal is not None
    return Leaf((constant_symbol(literal.value()),))


def meaning_leaves(meanings: Meanings) -> list[Meaning]:
    if meanings is None:
        return []
    if isinstance(meanings, Leaf):
        return [meanings.symbols]
    return [leaf for element in meanings for leaf in meaning_leaves(element)]
