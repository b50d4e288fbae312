"""Evaluation of tuples, tokens, copies, the ops that only order or mark values, and ends that pass results on."""

from __future__ import annotations

from spmd.evaluator.registry import evaluates
from spmd.evaluator.value import TOKEN, Operands, Value, tuple_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import TupleIndexAttrs


@evaluates(Opcode.TUPLE)
def evaluate_tuple(_: HloInstruction, operands: Operands) -> Value:
    return operands


@evaluates(Opcode.GET_TUPLE_ELEMENT)
def evaluate_get_tuple_element(instruction: HloInstruction, operands: Operands) -> Value:
    return tuple_of(operands[0])[instruction.attrs_as(TupleIndexAttrs).index]


@evaluates(
    Opcode.OPT_BARRIER,
    Opcode.ADD_DEPENDENCY,
    Opcode.DOMAIN,
    Opcode.COPY,
    Opcode.ASYNC_UPDATE,
    Opcode.ALL_REDUCE_DONE,
)
def evaluate_first_operand(_: HloInstruction, operands: Operands) -> Value:
    return operands[0]


@evaluates(Opcode.ASYNC_DONE, Opcode.ALL_GATHER_DONE, Opcode.COLLECTIVE_PERMUTE_DONE)
def evaluate_second_part(_: HloInstruction, operands: Operands) -> Value:
    """Return the result part of a start's value: (operand, result, ...)."""
    return tuple_of(operands[0])[1]


@evaluates(Opcode.AFTER_ALL)
def evaluate_after_all(_: HloInstruction, __: Operands) -> Value:
    return TOKEN
