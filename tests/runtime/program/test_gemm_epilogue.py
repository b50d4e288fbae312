"""Tests of the scalar programs that a library computes as the epilogue of a product, and of their scales."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.gpu.libraries.gemm import SUMS
from runtime.program.gemm_epilogue import EPILOGUE_TYPES, Activation, GemmEpilogue, gemm_epilogue
from runtime.program.program_builder import ProgramBuilder
from runtime.program.records.loop import LoopLeaf, Numbers, OperandElements
from runtime.program.strides import Shift, StridedView
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

BF16, F16, F32, F64 = (
    PrimitiveType.BF16,
    PrimitiveType.F16,
    PrimitiveType.F32,
    PrimitiveType.F64,
)
ADD, SUBTRACT, MULTIPLY, DIVIDE = Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY, Opcode.DIVIDE
#: The operands of each program, by the numbers of its parameters.
PRODUCT, ADDEND, BIAS = 0, 1, 2
DIMS = (2, 3, 4)
Write = Callable[[ProgramBuilder], int]


def leaf(operand: int, strides: tuple[int, ...], kind: PrimitiveType = F32) -> OperandElements:
    size = kind.byte_size
    return OperandElements(operand, StridedView(kind, DIMS, tuple(size * s for s in strides)))


def leaves_of(*kinds: PrimitiveType) -> list[LoopLeaf]:
    strides = {PRODUCT: (12, 4, 1), ADDEND: (12, 4, 1), BIAS: (0, 0, 1)}
    return [leaf(n, strides[n], kind) for n, kind in enumerate(kinds)]


def found(
    write: Write,
    kinds: tuple[PrimitiveType, ...] = (F32, F32, F32),
    leaves: list[LoopLeaf] | None = None,
    first_column: int = 2,
) -> GemmEpilogue | None:
    p = ProgramBuilder(*kinds)
    program = p.giving(write(p))
    return gemm_epilogue(program, leaves or leaves_of(*kinds), PRODUCT, first_column)


def op(p: ProgramBuilder, opcode: Opcode, *operands: int, kind: PrimitiveType = F32) -> int:
    return p.op(opcode, kind, *operands)


def relu(p: ProgramBuilder, register: int, kind: PrimitiveType = F32) -> int:
    return op(p, Opcode.MAXIMUM, register, p.constant(kind, 0.0), kind=kind)


def times(p: ProgramBuilder, register: int, factor: float) -> int:
    return op(p, MULTIPLY, p.constant(F32, factor), register)


ACCEPTED: dict[str, tuple[Write, GemmEpilogue]] = {
    "bias": (lambda p: op(p, ADD, PRODUCT, BIAS), GemmEpilogue(1.0, bias=BIAS)),
    "relu": (lambda p: relu(p, PRODUCT), GemmEpilogue(1.0, activation=Activation.RELU)),
    "bias and relu": (
        lambda p: relu(p, op(p, ADD, BIAS, PRODUCT)),
        GemmEpilogue(1.0, bias=BIAS, activation=Activation.RELU),
    ),
    "zero first": (
        lambda p: op(p, Opcode.MAXIMUM, p.constant(F32, -0.0), PRODUCT),
        GemmEpilogue(1.0, activation=Activation.RELU),
    ),
    "residual": (lambda p: op(p, ADD, ADDEND, PRODUCT), GemmEpilogue(1.0, 1.0, ADDEND)),
    "update": (
        lambda p: op(p, SUBTRACT, ADDEND, times(p, PRODUCT, 0.5)),
        GemmEpilogue(-0.5, 1.0, ADDEND),
    ),
    "difference": (lambda p: op(p, SUBTRACT, PRODUCT, ADDEND), GemmEpilogue(1.0, -1.0, ADDEND)),
    "scales": (
        lambda p: op(p, ADD, times(p, times(p, PRODUCT, 3.0), 0.5), times(p, ADDEND, 0.25)),
        GemmEpilogue(1.5, 0.25, ADDEND),
    ),
    "division by a power of two": (
        lambda p: op(p, DIVIDE, PRODUCT, p.constant(F32, 8.0)),
        GemmEpilogue(0.125),
    ),
    "negated sum": (
        lambda p: op(p, Opcode.NEGATE, op(p, SUBTRACT, PRODUCT, ADDEND)),
        GemmEpilogue(-1.0, 1.0, ADDEND),
    ),
    "all": (
        lambda p: relu(p, op(p, ADD, op(p, ADD, ADDEND, times(p, PRODUCT, 2.0)), BIAS)),
        GemmEpilogue(2.0, 1.0, ADDEND, BIAS, activation=Activation.RELU),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    write, want = ACCEPTED[name]
    assert found(write) == want


REFUSED: dict[str, Write] = {
    "no product": lambda p: op(p, ADD, ADDEND, BIAS),
    "product of the product": lambda p: op(p, MULTIPLY, PRODUCT, PRODUCT),
    "product times an array": lambda p: op(p, MULTIPLY, PRODUCT, ADDEND),
    "twice the product": lambda p: op(p, ADD, PRODUCT, PRODUCT),
    "no product left": lambda p: op(p, SUBTRACT, PRODUCT, PRODUCT),
    "times zero": lambda p: times(p, PRODUCT, 0.0),
    "a constant": lambda p: op(p, ADD, PRODUCT, p.constant(F32, 1.0)),
    "constants that cancel": lambda p: op(
        p, SUBTRACT, op(p, ADD, PRODUCT, p.constant(F32, 1.0)), p.constant(F32, 1.0)
    ),
    "scaled bias": lambda p: op(p, ADD, PRODUCT, times(p, BIAS, 2.0)),
    "subtracted bias": lambda p: op(p, SUBTRACT, PRODUCT, BIAS),
    "scaled sum": lambda p: times(p, op(p, ADD, PRODUCT, ADDEND), 2.0),
    "division that rounds": lambda p: op(p, DIVIDE, PRODUCT, p.constant(F32, 3.0)),
    "division of a constant": lambda p: op(p, DIVIDE, p.constant(F32, 2.0), PRODUCT),
    "maximum with another number": lambda p: op(p, Opcode.MAXIMUM, PRODUCT, p.constant(F32, 1.0)),
    "maximum with an array": lambda p: op(p, Opcode.MAXIMUM, PRODUCT, ADDEND),
    "minimum": lambda p: op(p, Opcode.MINIMUM, PRODUCT, p.constant(F32, 0.0)),
    "relu in the middle": lambda p: op(p, ADD, relu(p, PRODUCT), ADDEND),
    "another function": lambda p: op(p, Opcode.TANH, PRODUCT),
    "infinite scale": lambda p: times(p, PRODUCT, float("inf")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert found(REFUSED[name]) is None


def converted_bias(kind: PrimitiveType, result: PrimitiveType) -> Write:
    """Return the sum of the product and the bias in ``kind``, converted to ``result``."""

    def write(p: ProgramBuilder) -> int:
        terms = p.converted(PRODUCT, kind), p.converted(BIAS, kind)
        return p.converted(relu(p, op(p, ADD, *terms, kind=kind), kind), result)

    return write


@pytest.mark.parametrize(
    ("product", "other", "computed", "result", "accepted"),
    [
        (BF16, BF16, BF16, BF16, True),
        (F32, BF16, F32, BF16, True),
        (BF16, BF16, F32, BF16, True),
        (F16, F16, F32, F16, True),
        (F64, F64, F64, F64, True),
        (F32, F32, F32, BF16, False),  # a bias has the type of the result
        (BF16, F32, F32, F32, False),  # the product is rounded to a narrower type
        (F32, F32, BF16, F32, False),  # and here the sum
        (F16, BF16, BF16, BF16, False),  # f16 holds no bf16
        (F32, F32, F64, F32, False),  # a library sums f32 in f32
    ],
)
def test_types(
    product: PrimitiveType,
    other: PrimitiveType,
    computed: PrimitiveType,
    result: PrimitiveType,
    accepted: bool,
) -> None:
    epilogue = found(converted_bias(computed, result), (product, other, other))
    assert epilogue == (
        GemmEpilogue(1.0, bias=BIAS, activation=Activation.RELU) if accepted else None
    )


@pytest.mark.parametrize(
    ("strides", "first_column", "want"),
    [
        ((12, 4, 1), 2, GemmEpilogue(1.0, 1.0, addend=1)),
        ((0, 0, 1), 2, GemmEpilogue(1.0, bias=1)),
        ((0, 4, 1), 1, GemmEpilogue(1.0, bias=1)),  # two dimensions of columns
        ((0, 4, 1), 2, None),  # a batch that shares an array
        ((0, 1, 0), 2, None),  # along rows
        ((0, 0, 2), 2, None),  # with gaps
        ((12, 1, 3), 2, None),  # transposed
        ((24, 4, 1), 2, None),
        ((0, 0, 0), 2, None),  # a scalar
    ],
)
def test_what_is_read(
    strides: tuple[int, ...], first_column: int, want: GemmEpilogue | None
) -> None:
    leaves: list[LoopLeaf] = [leaf(PRODUCT, (12, 4, 1)), leaf(1, strides)]
    write: Write = lambda p: op(p, ADD, 0, 1)  # noqa: E731
    assert found(write, (F32, F32), leaves, first_column) == want


def test_leaves_that_are_no_arrays() -> None:
    product, view = leaf(PRODUCT, (12, 4, 1)), StridedView(F32, DIMS, (48, 16, 4))
    others: list[LoopLeaf] = [
        Numbers(StridedView(F32, DIMS, (12, 4, 1))),
        OperandElements(1, view, (Shift(0, 1, 48),)),
        leaf(PRODUCT, (12, 4, 1)),  # the product again
    ]
    for other in others:
        assert found(lambda p: op(p, ADD, 0, 1), (F32, F32), [product, other]) is None


def test_libraries_have_these_types() -> None:
    assert set(SUMS) >= EPILOGUE_TYPES
