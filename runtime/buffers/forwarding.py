"""Search for the state leaves that a loop changes. The body passes the others on unchanged, through any nesting."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ParameterAttrs, TupleIndexAttrs
from spmd.shape import ArrayShape, ShapeIndex, leaves

Source = tuple[HloInstruction, ShapeIndex]

_TRANSPARENT = frozenset({Opcode.COPY, Opcode.DOMAIN})


def source_of(instruction: HloInstruction, index: ShapeIndex) -> Source:
    """Return the instruction and leaf, in the same computation, whose value leaf ``index`` of ``instruction`` has.

    The search passes through tuples, copies, barriers, calls, and loops that pass the leaf on.
    """
    while True:
        if instruction.opcode is Opcode.TUPLE and index:
            instruction, index = instruction.operand(index[0]), index[1:]
        elif instruction.opcode is Opcode.GET_TUPLE_ELEMENT:
            index = (instruction.attrs_as(TupleIndexAttrs).index, *index)
            instruction = instruction.operand(0)
        elif instruction.opcode is Opcode.OPT_BARRIER:
            if instruction.num_operands > 1:
                instruction, index = instruction.operand(index[0]), index[1:]
            else:
                instruction = instruction.operand(0)
        elif instruction.opcode in _TRANSPARENT:
            instruction = instruction.operand(0)
        elif instruction.opcode is Opcode.CALL:
            callee, inner = source_of(instruction.to_apply.root, index)
            if callee.opcode is not Opcode.PARAMETER:
                return instruction, index
            instruction, index = instruction.operand(callee.attrs_as(ParameterAttrs).number), inner
        elif instruction.opcode is Opcode.WHILE and _passes_through(instruction, index):
            instruction = instruction.operand(0)
        else:
            return instruction, index


def _passes_through(loop: HloInstruction, index: ShapeIndex) -> bool:
    """Return whether the body of ``loop`` returns state leaf ``index`` unchanged."""
    source, found = source_of(loop.while_body.root, index)
    return source.opcode is Opcode.PARAMETER and found == index


def carried_leaves(loop: HloInstruction) -> list[int]:
    """Return the numbers, among the array leaves, of the state leaves that the body of ``loop`` changes."""
    arrays = [index for index, shape in leaves(loop.shape) if isinstance(shape, ArrayShape)]
    return [n for n, index in enumerate(arrays) if not _passes_through(loop, index)]
