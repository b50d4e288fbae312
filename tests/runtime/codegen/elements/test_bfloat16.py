"""Tests that native bf16 results are the evaluator's, rounded once per operation, for all numbers and kinds of nan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from runtime.codegen.ir import element_operations
from runtime.codegen.ir.element_operations import has_operation, host_instructions, operation_ir
from runtime.cpu.kernels.loop import loop as loop_kernels
from runtime.cpu.kernels.loop.loop import ArrayAccess, bind_loop, bind_operation
from runtime.program.scalar_program import (
    ElementSignature,
    Provenance,
    ScalarOp,
    ScalarProgram,
    provenance_of,
)
from spmd.hlo import Opcode
from spmd.literal import NDArray
from spmd.shape import PrimitiveType
from tests.documents.native_math import FUNCTIONS, exact_values, ulps
from tests.runtime.cpu.kernels.loop.element_signatures import SIGNATURES, canonical, reference

P, Op = PrimitiveType, Opcode
BF16 = P.BF16.numpy
ALL = np.arange(1 << 16, dtype=np.uint16)
#: Functions with approximations of their own are judged by test_accuracy.py.
UNARY = [
    signature
    for form in SIGNATURES
    if form[1] == (P.BF16,)
    and form[2] is P.BF16
    and has_operation(signature := ElementSignature(*form))
    and form[0] not in {opcode for opcode, _ in FLOAT_FUNCTIONS}
]
BINARY = (Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.DIVIDE, Op.MAXIMUM, Op.MINIMUM, Op.REMAINDER)


@pytest.fixture(params=["host", "plain"])
def _instructions(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Run with the host's instructions, and with those that every processor has."""
    if request.param == "plain":
        if host_instructions() == Instructions():
            pytest.skip("the host has no others")
        monkeypatch.setattr(element_operations, "host_instructions", Instructions)
        loop_kernels.loop_code.cache_clear()
    yield
    if request.param == "plain":
        loop_kernels.loop_code.cache_clear()


def native(signature: ElementSignature, operands: list[NDArray]) -> NDArray:
    out = np.empty(operands[0].shape, signature.result.numpy)
    bind_operation(signature, operands, out)()
    return out


def check(signature: ElementSignature, operands: list[NDArray]) -> None:
    with np.errstate(all="ignore"):
        want = reference(signature, operands)
        assert canonical(native(signature, operands)) == canonical(want)


def patterns() -> NDArray:
    """Return every exponent and sign with the least, the largest and some other mantissas.

    Zeros, denormal numbers and every kind of nan are among them.
    """
    mantissas = np.array([0, 1, 2, 0x15, 0x3F, 0x40, 0x41, 0x7F], np.uint16)
    return (np.arange(1 << 9, dtype=np.uint16)[:, None] << 7 | mantissas).ravel()


def pairs() -> list[NDArray]:
    some = patterns()
    few = np.concatenate([some[::13], some[-8:], some[2040:2056]])
    return [x.ravel().view(BF16) for x in np.meshgrid(some, few)]


@pytest.mark.usefixtures("_instructions")
@pytest.mark.parametrize("signature", UNARY, ids=lambda s: s.opcode.value)
def test_operations_of_one_operand_on_all_numbers(signature: ElementSignature) -> None:
    check(signature, [ALL.view(BF16)])


@pytest.mark.usefixtures("_instructions")
@pytest.mark.parametrize("opcode", BINARY)
def test_operations_of_two_operands(opcode: Opcode) -> None:
    check(ElementSignature(opcode, (P.BF16, P.BF16), P.BF16), pairs())


@pytest.mark.usefixtures("_instructions")
@pytest.mark.parametrize("kind", [kind for kind in P if kind.is_floating or kind.is_integer])
def test_conversions_to_bf16(kind: PrimitiveType) -> None:
    """All numbers of up to 16 bits are converted.

    Of f32 and f64 there are ties, nan at the edges of the payload, and numbers that overflow.
    """
    signature = ElementSignature(Op.CONVERT, (kind,), P.BF16)
    if kind.is_floating and kind.bits > 16:
        lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
        x = ((ALL.astype(np.uint32) << 16)[:, None] | lower).ravel().view(np.float32)
    elif kind.is_integer and kind.bits > 16:
        x = np.concatenate(
            [1 << np.arange(kind.bits - 1, dtype=np.uint64), ALL.astype(np.uint64) * 257]
        )
    else:
        x = ALL[: 1 << kind.bits].astype(f"u{kind.byte_size}").view(kind.numpy)
    with np.errstate(all="ignore"):
        check(signature, [x.astype(kind.numpy)])


@pytest.mark.usefixtures("_instructions")
def test_programs_round_after_each_operation() -> None:
    """The program is (a * b + a) / (b - a) * a, in which nan and infinities arise."""
    two = (P.BF16, P.BF16)
    steps = [(Op.MULTIPLY, 0, 1), (Op.ADD, 2, 0), (Op.SUBTRACT, 1, 0), (Op.DIVIDE, 3, 4)]
    steps.append((Op.MULTIPLY, 5, 0))
    program = ScalarProgram(
        two,
        tuple(ScalarOp(ElementSignature(op, two, P.BF16), tuple(at)) for op, *at in steps),
        (6,),
    )
    values = pairs()
    out = np.empty_like(values[0])
    every = (*values, out)
    accesses = [ArrayAccess(x.ctypes.data, x.strides, x.itemsize) for x in every]
    bind_loop(program, out.shape, accesses, every)()
    with np.errstate(all="ignore"):
        for op, *at in steps:
            values.append(reference(ElementSignature(op, two, P.BF16), [values[i] for i in at]))
    assert canonical(out) == canonical(values[-1])


#: For functions with polynomials for bf16 alone, the numbers next to ties that are rounded to the wrong side.
SHORT = {Op.TANH: [], Op.EXPONENTIAL: [-0.224609375], Op.LOGISTIC: [0.2275390625]}


@pytest.mark.skipif(not host_instructions().fused, reason="they are rounded once more each step")
@pytest.mark.parametrize("opcode", SHORT)
def test_short_functions_are_rounded_correctly(opcode: Opcode) -> None:
    (function,) = (function for function in FUNCTIONS if function.opcode is opcode)
    x = ALL.view(BF16)
    found = ulps(
        native(ElementSignature(opcode, (P.BF16,), P.BF16), [x]),
        exact_values(function, P.BF16, [x]),
        P.BF16,
    )
    assert set(x[found > 0.5].astype(float)) <= set(SHORT[opcode])


def test_a_nan_of_every_payload_stays_one() -> None:
    """Rounding would carry nan with ones at the end to infinity or to -0; the sign stays."""
    bits = np.array([0x7F800001, 0x7F80FFFF, 0x7FFFFFFF, 0x7FC00000], np.uint32)
    x = np.concatenate([bits, bits | 0x80000000]).view(np.float32)
    y = native(ElementSignature(Op.CONVERT, (P.F32,), P.BF16), [x])
    assert np.isnan(y.astype(np.float32)).all()
    assert (np.signbit(y.astype(np.float32)) == np.signbit(x)).all()


def test_what_is_known_of_an_operation_decides_on_its_rounding() -> None:
    def provenance(opcode: Opcode, *kinds: PrimitiveType) -> Provenance:
        return provenance_of(ElementSignature(opcode, kinds, P.BF16))

    assert provenance(Op.CONVERT, P.F32) is Provenance.ANYWHERE
    assert provenance(Op.CONVERT, P.F16) is Provenance.ANYWHERE
    assert provenance(Op.CONVERT, P.S32) is Provenance.COMPUTED
    assert provenance(Op.CONVERT, P.F8E4M3FN) is Provenance.CHOSEN
    assert provenance(Op.ADD, P.BF16, P.BF16) is Provenance.COMPUTED
    assert provenance(Op.TANH, P.BF16) is Provenance.COMPUTED
    assert provenance(Op.POWER, P.BF16, P.BF16) is Provenance.ANYWHERE
    assert provenance(Op.NEGATE, P.BF16) is Provenance.CHOSEN
    assert provenance(Op.ADD, P.F32, P.F32) is Provenance.ANYWHERE


def test_processors_that_add_no_pairs_round_otherwise() -> None:
    add = ElementSignature(Op.ADD, (P.BF16, P.BF16), P.BF16)
    assert "vpdpwssd" in "".join(operation_ir(add, instructions=Instructions(pairs=True)))
    assert "llvm.x86" not in "".join(operation_ir(add, instructions=Instructions()))
