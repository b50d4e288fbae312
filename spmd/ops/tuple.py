"""Ops that group and order values without work: tuple, get-tuple-element, opt-barrier, domain, after-all,
add-dependency.
"""

from __future__ import annotations

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.checks import check_token, plain
from spmd.ops.leaf import infer_token
from spmd.ops.opdef import define, no_bytes
from spmd.ops.reshape import infer_operand
from spmd.shape import Shape, TupleShape, as_tuple


def infer_tuple(instruction: HloInstruction) -> Shape:
    return TupleShape(tuple(plain(x.shape) for x in instruction.operands))


def infer_get_tuple_element(instruction: HloInstruction) -> Shape:
    elements = as_tuple(instruction.operand(0).shape).elements
    index = instruction.attrs_as(TupleIndexAttrs).index
    if not 0 <= index < len(elements):
        raise ShapeError(f"index={index} of a tuple with {len(elements)} elements")
    return plain(elements[index])


def verify_add_dependency(instruction: HloInstruction) -> None:
    check_token(instruction, 1)


define(Opcode.TUPLE, infer_tuple, None, bytes_accessed=no_bytes)
define(Opcode.GET_TUPLE_ELEMENT, infer_get_tuple_element, 1, bytes_accessed=no_bytes)
define(Opcode.OPT_BARRIER, infer_operand, 1, bytes_accessed=no_bytes)
define(Opcode.DOMAIN, infer_operand, 1, bytes_accessed=no_bytes)
#: Operands are tokens, or any values that must be computed before (XLA's rule).
define(Opcode.AFTER_ALL, infer_token, None, bytes_accessed=no_bytes)
define(Opcode.ADD_DEPENDENCY, infer_operand, 2, verify_add_dependency, bytes_accessed=no_bytes)
