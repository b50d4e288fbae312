"""Evaluation of tuples, tokens, and the ops that only order or mark values."""

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


@evaluates(Opcode.OPT_BARRIER, Opcode.ADD_DEPENDENCY, Opcode.DOMAIN)
def evaluate_first_operand(_: HloInstruction, operands: Operands) -> Value:
    return operands[0]


@evaluates(Opcode.AFTER_ALL)
def evaluate_after_all(_: HloInstruction, __: Operands) -> Value:
    return TOKEN
