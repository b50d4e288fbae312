"""Tests of the programs that are gelu of a product, or its gradient, whatever the order of their operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import pytest

from runtime.program.gemm_epilogue import Activation, GemmEpilogue, gemm_epilogue
from runtime.program.polynomials import Polynomials
from runtime.program.program_builder import ProgramBuilder
from runtime.program.records.loop import LoopLeaf, OperandElements
from runtime.program.strides import StridedView
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

BF16, F16, F32, F64 = (
    PrimitiveType.BF16,
    PrimitiveType.F16,
    PrimitiveType.F32,
    PrimitiveType.F64,
)
ADD, SUBTRACT, MULTIPLY = Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY
PRODUCT, ADDEND, BIAS = 0, 1, 2
DIMS = (3, 8)
C, A = math.sqrt(2 / math.pi), 0.044715


class Writer:
    """Writer of a program of type ``kind``, whose parameters are the product, an array and a vector."""

    def __init__(self, kind: PrimitiveType = F32) -> None:
        self.kind, self.builder = kind, ProgramBuilder(kind, kind, kind)

    def number(self, value: float) -> int:
        return self.builder.constant(self.kind, value)

    def op(self, opcode: Opcode, *operands: int) -> int:
        return self.builder.op(opcode, self.kind, *operands)

    def add(self, one: int, other: int) -> int:
        return self.op(ADD, one, other)

    def times(self, *factors: int | float) -> int:
        first, *others = (self.number(f) if isinstance(f, float) else f for f in factors)
        for other in others:
            first = self.op(MULTIPLY, first, other)
        return first

    def tangent(self, x: int, c: float = C, a: float = A) -> int:
        return self.op(Opcode.TANH, self.times(c, self.add(x, self.times(a, x, x, x))))

    def gelu(self, x: int, c: float = C, a: float = A) -> int:
        return self.times(x, 0.5, self.add(self.number(1.0), self.tangent(x, c, a)))

    def gradient(self, x: int, cubed: float = 3.0) -> int:
        """Return dgelu(x) in another order than JAX has."""
        t = self.tangent(x)
        outer = self.times(0.5, self.add(t, self.number(1.0)))
        sech = self.op(SUBTRACT, self.number(1.0), self.times(t, t))
        inner = self.times(C, self.add(self.number(1.0), self.times(cubed * A, x, x)))
        return self.add(outer, self.times(0.5, x, sech, inner))

    def found(self, *results: int, keeps_product: bool = False) -> GemmEpilogue | None:
        strides = {PRODUCT: (8, 1), ADDEND: (8, 1), BIAS: (0, 1)}
        size = self.kind.byte_size
        leaves: list[LoopLeaf] = [
            OperandElements(n, StridedView(self.kind, DIMS, tuple(size * s for s in strides[n])))
            for n in range(3)
        ]
        program = self.builder.giving(*results)
        return gemm_epilogue(program, leaves, PRODUCT, 1, keeps_product=keeps_product)


Write: TypeAlias = Callable[[Writer], int]
GELU = Activation.GELU

ACCEPTED: dict[str, tuple[Write, GemmEpilogue]] = {
    "gelu": (lambda w: w.gelu(PRODUCT), GemmEpilogue(1.0, activation=GELU)),
    "of a sum with a bias": (
        lambda w: w.gelu(w.add(PRODUCT, BIAS)),
        GemmEpilogue(1.0, bias=BIAS, activation=GELU),
    ),
    "of a sum that is computed again": (
        lambda w: w.times(
            0.5, w.add(BIAS, PRODUCT), w.add(w.number(1.0), w.tangent(w.add(PRODUCT, BIAS)))
        ),
        GemmEpilogue(1.0, bias=BIAS, activation=GELU),
    ),
    "of a sum with an array": (
        lambda w: w.gelu(w.op(SUBTRACT, PRODUCT, ADDEND)),
        GemmEpilogue(1.0, -1.0, ADDEND, activation=GELU),
    ),
    "of a multiple": (
        lambda w: w.gelu(w.times(0.25, PRODUCT)),
        GemmEpilogue(0.25, activation=GELU),
    ),
    "gradient": (
        lambda w: w.times(PRODUCT, w.gradient(ADDEND)),
        GemmEpilogue(1.0, activation=Activation.GELU_GRADIENT, aux=ADDEND),
    ),
    "gradient of a multiple": (
        lambda w: w.times(w.gradient(ADDEND), w.times(-2.0, PRODUCT)),
        GemmEpilogue(-2.0, activation=Activation.GELU_GRADIENT, aux=ADDEND),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("kind", [F32, BF16, F16])
def test_accepted(name: str, kind: PrimitiveType) -> None:
    write, want = ACCEPTED[name]
    w = Writer(kind)
    assert w.found(write(w)) == want


REFUSED: dict[str, Write] = {
    "another scale of the tangent": lambda w: w.gelu(PRODUCT, c=0.8),
    "another cube": lambda w: w.gelu(PRODUCT, a=0.045),
    "without the cube": lambda w: w.gelu(PRODUCT, a=0.0),
    "of another value": lambda w: w.times(ADDEND, 0.5, w.add(w.number(1.0), w.tangent(PRODUCT))),
    "twice gelu": lambda w: w.times(2.0, w.gelu(PRODUCT)),
    "a sum with gelu": lambda w: w.add(w.gelu(PRODUCT), ADDEND),
    "gelu of an array": lambda w: w.times(PRODUCT, w.gelu(ADDEND)),
    "gelu of a scaled sum": lambda w: w.gelu(w.times(0.25, w.add(PRODUCT, ADDEND))),
    "two tangents": lambda w: w.add(w.gelu(PRODUCT), w.gelu(ADDEND)),
    "quick gelu": lambda w: w.times(PRODUCT, w.op(Opcode.LOGISTIC, w.times(1.702, PRODUCT))),
    "another gradient": lambda w: w.times(PRODUCT, w.gradient(ADDEND, cubed=2.9)),
    "gradient at the product": lambda w: w.times(ADDEND, w.gradient(PRODUCT)),
    "gradient at a vector": lambda w: w.times(PRODUCT, w.gradient(BIAS)),
    "gradient of a sum": lambda w: w.times(w.add(PRODUCT, ADDEND), w.gradient(ADDEND)),
    "gradient at a sum": lambda w: w.times(PRODUCT, w.gradient(w.add(ADDEND, BIAS))),
    "infinite scale": lambda w: w.times(float("inf"), w.gelu(PRODUCT)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    w = Writer()
    assert w.found(REFUSED[name](w)) is None


def test_f64_is_refused() -> None:
    w = Writer(F64)
    assert w.found(w.gelu(PRODUCT)) is None


def test_a_rounding_to_another_type_is_refused() -> None:
    w = Writer()
    narrow = w.builder.converted(w.builder.converted(PRODUCT, BF16), F32)
    assert w.found(w.gelu(narrow)) is None


@pytest.mark.parametrize("error", [0.0, 2.0**-9, 2.0**-5])
def test_constants_may_be_rounded_to_the_type_of_the_result(error: float) -> None:
    for kind, accepted in ((F32, error == 0.0), (BF16, error < 2.0**-7)):
        w = Writer(kind)
        assert (w.found(w.gelu(PRODUCT, c=C * (1.0 + error))) is not None) == accepted


@pytest.mark.parametrize("first", [False, True])
def test_the_argument_may_be_a_result(*, first: bool) -> None:
    w = Writer()
    x = w.add(PRODUCT, BIAS)
    y = w.gelu(x)
    found = w.found(*((x, y) if first else (y, x)))
    numbers = {"result": int(first), "saved": int(not first)}
    assert found == GemmEpilogue(1.0, bias=BIAS, activation=GELU, **numbers)


def test_other_results_are_refused() -> None:
    w = Writer()
    x = w.add(PRODUCT, BIAS)
    y = w.gelu(x)
    assert w.found(y, w.times(2.0, x)) is None
    assert w.found(y, PRODUCT) is None
    assert w.found(x, y, y) is None
    assert w.found(w.times(PRODUCT, w.gradient(ADDEND)), PRODUCT) is None


def test_the_product_may_be_a_result_of_the_kernel() -> None:
    w = Writer()
    assert w.found(w.gelu(PRODUCT), keeps_product=True) == GemmEpilogue(1.0, activation=GELU)
    for write in (
        lambda w: w.gelu(w.add(PRODUCT, BIAS)),  # what is kept is another value
        lambda w: w.gelu(w.times(0.5, PRODUCT)),
        lambda w: w.add(PRODUCT, BIAS),
        lambda w: w.times(PRODUCT, w.gradient(ADDEND)),
    ):
        w = Writer()
        assert w.found(write(w), keeps_product=True) is None


def test_a_product_of_another_type_is_no_argument() -> None:
    """cuBLASLt writes arguments of gelu in the type of D."""
    p = ProgramBuilder(F32, BF16, BF16)
    w = Writer()
    w.builder = p
    program = p.giving(p.converted(w.gelu(PRODUCT), BF16))
    leaf = OperandElements(PRODUCT, StridedView(F32, DIMS, (32, 4)))
    assert gemm_epilogue(program, [leaf], PRODUCT, 1) is not None
    assert gemm_epilogue(program, [leaf], PRODUCT, 1, keeps_product=True) is None


def test_polynomials_stay_small() -> None:
    """Powers of a sum have ever more terms: they are given up."""
    w = Writer()
    x = w.add(w.add(PRODUCT, ADDEND), BIAS)
    for _ in range(6):
        x = w.times(x, x)
    assert Polynomials.of(w.builder.giving(x)).values[x] is None
