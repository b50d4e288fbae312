"""Comparisons with a known result."""

from __future__ import annotations

import operator

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import MIRRORED, CompareAttrs, Opcode
from spmd.ops.attrs import IotaAttrs
from spmd.ops.opdef import OPS
from spmd.passes.algebraic.match import element_type, is_splat, splat
from spmd.passes.algebraic.rules import simplifies
from spmd.shape import PrimitiveType


@simplifies(Opcode.COMPARE)
def with_itself(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """i == i => true on integers and pred (a nan differs from itself)"""
    left, right = x.operands
    if left is not right or element_type(left).is_floating or element_type(left).is_complex:
        return None
    return b.full(x.array_shape, x.attrs_as(CompareAttrs).direction in ("EQ", "GE", "LE"))


@simplifies(Opcode.COMPARE)
def with_truth(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """p == true => p;  p != false => p;  p == false => not p"""
    direction = x.attrs_as(CompareAttrs).direction
    if element_type(x.operand(0)) is not PrimitiveType.PRED or direction not in ("EQ", "NE"):
        return None
    for value, other in (x.operands, x.operands[::-1]):
        known = splat(other)
        if known is not None:
            return value if bool(known) == (direction == "EQ") else b.logical_not(value)
    return None


@simplifies(Opcode.COMPARE)
def out_of_range(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """A comparison with the same result for every possible value => a constant: unsigned >= 0, iota < its size."""
    direction = x.attrs_as(CompareAttrs).direction
    left, right = x.operands
    answer = _known(left, right, direction)
    if answer is None:
        answer = _known(right, left, MIRRORED[direction])
    return None if answer is None else b.full(x.array_shape, answer)


def _known(value: HloInstruction, other: HloInstruction, direction: str) -> bool | None:
    limits, bound = value_limits(value), splat(other)
    return None if limits is None or bound is None else _answer(limits, int(bound), direction)


def value_limits(x: HloInstruction) -> tuple[int, int] | None:
    """Return the least and the greatest integer that ``x`` can be, as far as its operation or type tells."""
    if not element_type(x).is_integer:
        return None
    while x.opcode in (Opcode.BROADCAST, Opcode.RESHAPE, Opcode.TRANSPOSE, Opcode.SLICE):
        x = x.operand(0)
    if x.opcode is Opcode.IOTA:
        last = max(0, x.dims[x.attrs_as(IotaAttrs).dimension] - 1)
        if last < 2 ** (element_type(x).bits - 1):  # otherwise the number wraps around
            return 0, last
    if element_type(x).is_unsigned_integer:
        return 0, 2 ** element_type(x).bits - 1
    return None


def _answer(limits: tuple[int, int], bound: int, direction: str) -> bool | None:
    low, high = limits
    if direction in ("GE", "LT") and low >= bound:
        return direction == "GE"
    if direction in ("GE", "LT") and high < bound:
        return direction == "LT"
    if direction in ("GT", "LE") and high <= bound:
        return direction == "LE"
    if direction in ("GT", "LE") and low > bound:
        return direction == "GT"
    if direction in ("EQ", "NE") and not low <= bound <= high:
        return direction == "NE"
    return None


@simplifies(Opcode.COMPARE)
def compare_of_select(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """select(p, 1, 0) != 1 => not p, and so on, if both choices and the other side are constants."""
    attrs = x.attrs_as(CompareAttrs)
    if attrs.type == "TOTALORDER":
        return None
    for (chosen, other), direction in (
        (x.operands, attrs.direction),
        (x.operands[::-1], MIRRORED[attrs.direction]),
    ):
        if chosen.opcode is not Opcode.SELECT:
            continue
        one, zero, bound = splat(chosen.operand(1)), splat(chosen.operand(2)), splat(other)
        if one is None or zero is None or bound is None:
            continue
        holds = _COMPARED[direction]
        if_true, if_false = bool(holds(one, bound)), bool(holds(zero, bound))
        if if_true == if_false:
            return b.full(x.array_shape, if_true)
        predicate = chosen.operand(0)
        if predicate.dims != x.dims:
            predicate = b.broadcast_scalar(predicate, x.dims)
        return predicate if if_true else b.logical_not(predicate)
    return None


@simplifies(Opcode.COMPARE)
def compare_of_rectified(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """z > 0 => maximum(z, 0) > 0;  z <= 0 => maximum(z, 0) <= 0, where there is such a maximum and z is needed no more

    The gradient of a rectifier asks where its input was positive. Asked of the output, which the next layer's gradient
    reads anyway, the input dies at once.
    """
    found = _compared_with_zero(x)
    if found is None or x.attrs_as(CompareAttrs).type == "TOTALORDER":
        return None
    value, zero = found
    rectified = next(filter(_is_rectified, value.users), None)
    if rectified is None or not _dies_with(value):
        return None
    operands = [rectified if operand is value else zero for operand in x.operands]
    return b.create(Opcode.COMPARE, operands, x.attrs)


def _compared_with_zero(x: HloInstruction) -> tuple[HloInstruction, HloInstruction] | None:
    """Return the value and the zero if ``x`` tells positive numbers from others, and nan from neither."""
    attrs = x.attrs_as(CompareAttrs)
    for (value, zero), direction in (
        (x.operands, attrs.direction),
        (x.operands[::-1], MIRRORED[attrs.direction]),
    ):
        if direction in ("GT", "LE") and is_splat(zero, 0):
            return value, zero
    return None


def _is_rectified(x: HloInstruction) -> bool:
    return x.opcode is Opcode.MAXIMUM and any(is_splat(operand, 0) for operand in x.operands)


def _dies_with(value: HloInstruction) -> bool:
    """Return whether ``value`` is computed for rectifiers and their gradients alone, and an array that it reads dies.

    Elementwise results cost nothing in memory: a kernel computes them again from what they read. What others read, such
    as a residual, is in memory anyway.
    """
    if not all(
        _is_rectified(user)
        or (user.opcode is Opcode.COMPARE and _compared_with_zero(user) is not None)
        for user in value.users
    ):
        return False
    stack, ends = [value], 0
    while stack:
        x = stack.pop()
        if x.opcode in _INPUTS or x.is_root or (x is not value and x.num_users > 1):
            continue
        if not OPS[x.opcode].elementwise:
            ends += 1
            continue
        stack += [operand for operand in x.operands if operand.opcode not in _REPEATED]
    return ends > 0


#: Opcodes whose arrays stay in memory, whichever instructions read them.
_INPUTS = (Opcode.GET_TUPLE_ELEMENT, Opcode.PARAMETER)
_REPEATED = (Opcode.BROADCAST, Opcode.CONSTANT)


_COMPARED = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}


@simplifies(Opcode.IOTA)
def iota_of_one(x: HloInstruction, b: Builder) -> HloInstruction | None:
    """An iota over a dimension of size 1 => 0"""
    return b.full(x.array_shape, 0) if x.dims[x.attrs_as(IotaAttrs).dimension] <= 1 else None
