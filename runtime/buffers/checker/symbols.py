"""Symbolic values of HLO dataflow for the buffer checker; independent of buffer assignment.

An array leaf has a *meaning*: the symbols that the value in its memory may have. The result of an operation that
computes has a new symbol. If all elements come from the operand (broadcast, slice, reshape, ...), the result also has
the operand's symbols.
"""

from __future__ import annotations

from typing import TypeAlias, Union

import numpy as np

from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.ops.attrs import ConstantAttrs, IotaAttrs, TupleIndexAttrs
from spmd.shape import ArrayShape, Shape, ShapeIndex, TupleShape, as_tuple

#: Identity of a value: (instruction, leaf, activation), or the contents of a constant. Equal symbols mean equal values.
Symbol: TypeAlias = tuple[object, ...]
#: Meanings of the array leaves of a result, nested as its shape; None for tokens.
Meanings: TypeAlias = Union["Meaning", tuple["Meanings", ...], None]

#: Activation of a computation: calls and (loop, trip) pairs from the entry down.
Context: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of an array: its value must have one of ``symbols`` and be in ``memory_space``."""

    symbols: tuple[Symbol, ...]
    memory_space: int

    def __str__(self) -> str:
        return str(self.symbols[0][0])


#: Opcodes for which every element of the result is an element of the first operand.
REARRANGING = frozenset(
    {
        Opcode.ADD_DEPENDENCY,
        Opcode.BITCAST,
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.COPY,
        Opcode.COPY_START,
        Opcode.DOMAIN,
        Opcode.IMAG,
        Opcode.REAL,
        Opcode.RESHAPE,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)


#: Index, in the result of a start, of the result of its done.
_START_RESULT: dict[Opcode, ShapeIndex] = {
    Opcode.ALL_REDUCE_START: (),
    Opcode.ALL_GATHER_START: (1,),
    Opcode.COLLECTIVE_PERMUTE_START: (1,),
    Opcode.ASYNC_START: (1,),
    Opcode.COPY_START: (0,),
}
_DONE = frozenset(
    {
        Opcode.ALL_REDUCE_DONE,
        Opcode.ALL_GATHER_DONE,
        Opcode.COLLECTIVE_PERMUTE_DONE,
        Opcode.ASYNC_DONE,
        Opcode.COPY_DONE,
    }
)


def own_meanings(
    instruction: HloInstruction, context: Context, shape: Shape, index: ShapeIndex = ()
) -> Meanings:
    """Return new symbols for all arrays of ``shape`` that ``instruction`` computes."""
    if isinstance(shape, TupleShape):
        return tuple(
            own_meanings(instruction, context, element, (*index, i))
            for i, element in enumerate(shape.elements)
        )
    if not isinstance(shape, ArrayShape):
        return None
    return Meaning(((instruction.name, index, context),), shape.memory_space)


def rearranged(
    instruction: HloInstruction, context: Context, operand: Meanings, shape: Shape
) -> Meaning:
    """Return the meaning of an array of ``shape`` whose elements come from ``operand``."""
    own = own_meanings(instruction, context, shape)
    assert isinstance(own, Meaning)
    assert isinstance(operand, Meaning)
    return Meaning((*own.symbols, *operand.symbols), own.memory_space)


def result_of(instruction: HloInstruction, operands: list[Meanings], context: Context) -> Meanings:
    """Return the meanings of the result of an instruction without control flow."""
    opcode = instruction.opcode
    if opcode is Opcode.TUPLE:
        return tuple(operands)
    if opcode is Opcode.GET_TUPLE_ELEMENT:
        return _part(operands[0], (instruction.attrs_as(TupleIndexAttrs).index,))
    if opcode is Opcode.OPT_BARRIER:
        return operands[0] if len(operands) == 1 else tuple(operands)
    if opcode in (Opcode.CONSTANT, Opcode.IOTA):
        return constant_meaning(instruction)
    if opcode is Opcode.COPY_START:
        copied = as_tuple(instruction.shape).elements[0]
        return (rearranged(instruction, context, operands[0], copied), operands[0], None)
    if is_rearranging(instruction):
        return rearranged(instruction, context, operands[0], instruction.shape)
    if opcode in _DONE:
        return _part(operands[0], _START_RESULT[instruction.operand(0).opcode])
    own = own_meanings(instruction, context, instruction.shape)
    if _START_RESULT.get(opcode):
        assert isinstance(own, tuple)
        first = operands[0] if len(operands) == 1 else tuple(operands)
        return (first, *own[1:])
    return own


def written_by(instruction: HloInstruction, result: Meanings) -> Meanings:
    """Return the meanings that ``instruction`` writes: ``result`` without the operands that a start passes on."""
    return _part(result, _START_RESULT.get(instruction.opcode, ()))


def _part(meanings: Meanings, index: ShapeIndex) -> Meanings:
    """Return the part of ``meanings`` at ``index``."""
    for i in index:
        assert isinstance(meanings, tuple)
        meanings = meanings[i]
    return meanings


def in_spaces_of(shape: Shape, meanings: Meanings) -> Meanings:
    """Return ``meanings`` with the memory spaces of ``shape``."""
    if isinstance(meanings, Meaning):
        assert isinstance(shape, ArrayShape)
        return Meaning(meanings.symbols, shape.memory_space)
    if meanings is None:
        return None
    assert isinstance(shape, TupleShape)
    return tuple(map(in_spaces_of, shape.elements, meanings))


def is_rearranging(instruction: HloInstruction) -> bool:
    """Return whether every element of the result is an element of the first operand."""
    if instruction.opcode is Opcode.CONVERT:
        source = instruction.operand(0).array_shape.element_type
        return source is instruction.array_shape.element_type
    return instruction.opcode in REARRANGING


def constant_symbol(array: NDArray) -> Symbol:
    """Return the symbol of the contents of ``array``. An array of equal elements has the symbol of one element."""
    flat = np.ascontiguousarray(array).reshape(-1)
    rows = flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize)
    if flat.size and (rows == rows[:1]).all():
        return ("constant", flat.dtype.str, flat.dtype.name, rows[0].tobytes())
    return ("constant", flat.dtype.str, flat.dtype.name, rows.tobytes())


def constant_meaning(instruction: HloInstruction) -> Meaning:
    """Return the meaning of a constant, or of an iota, which is stored as the numbers along its dimension."""
    shape = instruction.array_shape
    if instruction.opcode is Opcode.IOTA:
        size = shape.dims[instruction.attrs_as(IotaAttrs).dimension]
        symbol = constant_symbol(np.arange(size).astype(shape.element_type.numpy))
        return Meaning((symbol,), shape.memory_space)
    literal = instruction.attrs_as(ConstantAttrs).literal
    assert literal is not None
    return Meaning((constant_symbol(literal.value()),), shape.memory_space)


def meaning_leaves(meanings: Meanings) -> list[Meaning]:
    """Return the meanings of the array leaves in order."""
    if meanings is None:
        return []
    if isinstance(meanings, Meaning):
        return [meanings]
    return [leaf for element in meanings for leaf in meaning_leaves(element)]
