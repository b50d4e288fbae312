"""Operations on types below a byte, and on 8-bit floats: the evaluator's results on all pairs of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType
from tests.runtime.cpu.kernels.loop.element_signatures import canonical, reference

P, Op = PrimitiveType, Opcode
INTEGERS = (P.S4, P.U2, P.S1)
FLOATS = (P.F8E4M3FN, P.F8E5M2FNUZ)
ARITHMETIC = (Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.DIVIDE, Op.REMAINDER, Op.MAXIMUM, Op.POWER)
INTEGER_BINARY = (Op.SHIFT_LEFT, Op.SHIFT_RIGHT_LOGICAL, Op.SHIFT_RIGHT_ARITHMETIC, Op.AND)
INTEGER_UNARY = (Op.ABS, Op.NEGATE, Op.SIGN, Op.NOT, Op.POPCNT, Op.COUNT_LEADING_ZEROS)
#: Functions whose results in f32 may differ in the last bit stay the same in 8 bits but for rare ties.
FLOAT_UNARY = (Op.ABS, Op.NEGATE, Op.SIGN, Op.SQRT, Op.EXPONENTIAL, Op.TANH)
LESS = CompareAttrs("LT")


def pairs(kind: PrimitiveType) -> list[np.ndarray]:
    """Every number with every other."""
    patterns = np.arange(1 << kind.bits, dtype=np.uint8)
    if kind.is_integer:
        low = -(1 << (kind.bits - 1)) if kind.is_signed_integer else 0
        every = np.arange(low, low + (1 << kind.bits)).astype(kind.numpy)
    else:
        every = patterns.view(kind.numpy)
    return [every[column.ravel()] for column in np.meshgrid(patterns, patterns)]


def check(opcode: Opcode, operands: list[np.ndarray], result: PrimitiveType, attrs: Attrs) -> None:
    kinds = tuple(PrimitiveType.from_numpy(x.dtype) for x in operands)
    signature = ElementSignature(opcode, kinds, result, attrs)
    with np.errstate(all="ignore"):
        want = reference(signature, operands)
        got = np.empty(want.shape, result.numpy)
        bind_operation(signature, operands, got)()
        if result.is_floating:
            got, want = got.astype(np.float32), want.astype(np.float32)
        assert canonical(got) == canonical(want)


@pytest.mark.parametrize("opcode", [*ARITHMETIC, *INTEGER_BINARY, Op.COMPARE])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind: PrimitiveType, opcode: Opcode) -> None:
    is_compare = opcode is Op.COMPARE
    check(opcode, pairs(kind), P.PRED if is_compare else kind, LESS if is_compare else NO_ATTRS)


@pytest.mark.parametrize("opcode", INTEGER_UNARY)
@pytest.mark.parametrize("kind", [P.S4, P.U2])
def test_integers_alone(kind: PrimitiveType, opcode: Opcode) -> None:
    if opcode is not Op.ABS or kind.is_signed_integer:
        check(opcode, pairs(kind)[:1], kind, NO_ATTRS)


@pytest.mark.parametrize("opcode", [*ARITHMETIC[:-1], Op.COMPARE])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats(kind: PrimitiveType, opcode: Opcode) -> None:
    is_compare = opcode is Op.COMPARE
    check(opcode, pairs(kind), P.PRED if is_compare else kind, LESS if is_compare else NO_ATTRS)


@pytest.mark.parametrize("opcode", FLOAT_UNARY)
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_alone(kind: PrimitiveType, opcode: Opcode) -> None:
    check(opcode, pairs(kind)[:1], kind, NO_ATTRS)


@pytest.mark.parametrize("small", [P.S4, P.U2, P.F8E4M3FN, P.F4E2M1FN])
@pytest.mark.parametrize("other", [P.PRED, P.S4, P.S8, P.U32, P.BF16, P.F64])
def test_conversions(small: PrimitiveType, other: PrimitiveType) -> None:
    if small is other:
        return
    check(Op.CONVERT, pairs(small)[:1], other, NO_ATTRS)
    numbers = np.array([0, 1, -1, 1.5, -2.5, 7, 8, -8, -9, 300, -300, 1e9])
    if other.is_floating:
        numbers = np.append(numbers, [np.inf, -np.inf, -0.0])
    with np.errstate(all="ignore"):
        x = (numbers % 256).astype(np.uint8) if other.is_integer else numbers
        check(Op.CONVERT, [x.astype(other.numpy)], small, NO_ATTRS)
