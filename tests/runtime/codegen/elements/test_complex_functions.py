"""Tests of functions of complex numbers: exact values, and C's Annex G at the ends of the range and on the axes."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.codegen.ir.element_operations import has_operation
from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.runtime.cpu.kernels.loop.element_signatures import reference

P = PrimitiveType
UNARY = (
    Opcode.EXPONENTIAL,
    Opcode.EXPONENTIAL_MINUS_ONE,
    Opcode.LOG,
    Opcode.LOG_PLUS_ONE,
    Opcode.LOGISTIC,
    Opcode.SQRT,
    Opcode.RSQRT,
    Opcode.SIGN,
    Opcode.SINE,
    Opcode.COSINE,
    Opcode.TAN,
    Opcode.SINH,
    Opcode.COSH,
    Opcode.TANH,
)
BINARY = (Opcode.DIVIDE, Opcode.POWER)
#: Functions for which the annex leaves the sign of an infinite part open.
OPEN_SIGNS = (Opcode.SINH, Opcode.COSH, Opcode.SINE, Opcode.COSINE)


def native(opcode: Opcode, operands: list[np.ndarray]) -> np.ndarray:
    kind = P.from_numpy(operands[0].dtype)
    signature = ElementSignature(opcode, (kind,) * len(operands), kind)
    assert has_operation(signature)
    out = np.empty_like(operands[0])
    bind_operation(signature, operands, out)()
    return out


def evaluated(opcode: Opcode, operands: list[np.ndarray]) -> np.ndarray:
    kind = P.from_numpy(operands[0].dtype)
    with np.errstate(all="ignore"):
        return reference(ElementSignature(opcode, (kind,) * len(operands), kind), operands)


def random_numbers(opcode: Opcode, kind: PrimitiveType) -> list[np.ndarray]:
    """Return operands of all sizes whose results stay within the range, and operands near the unit circle."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-10, 4, (2, 2, 999))) * rng.choice([-1, 1], (2, 2, 999))
    operands = list(sizes[:, 0] + 1j * sizes[:, 1])
    operands[0][::3] = np.exp(1j * rng.uniform(-4, 4, 333))
    if opcode is Opcode.POWER:
        operands[1] = 3 * operands[1] / np.maximum(np.abs(operands[1]), 1)
    return [x.astype(kind.numpy) for x in operands][: 1 + (opcode in BINARY)]


@pytest.mark.parametrize("opcode", [*UNARY, *BINARY], ids=str)
def test_c64_is_near_what_c128_gives(opcode: Opcode) -> None:
    """The error is below two units of the number's last digit."""
    operands = random_numbers(opcode, P.C64)
    got = native(opcode, operands).astype(np.complex128)
    exact = evaluated(opcode, [x.astype(np.complex128) for x in operands])
    error = np.abs(got - exact) / (np.abs(exact) * np.finfo(np.float32).eps)
    assert np.all(error[np.abs(exact) < np.finfo(np.float32).max] < 2)


@pytest.mark.parametrize("opcode", [*UNARY, *BINARY], ids=str)
def test_c128_is_near_the_evaluators(opcode: Opcode) -> None:
    """The bound is larger for powers, where the rounding of w log z is multiplied by its size."""
    operands = random_numbers(opcode, P.C128)
    got, want = native(opcode, operands), evaluated(opcode, operands)
    error = np.abs(got - want) / (np.abs(want) * np.finfo(np.float64).eps)
    assert np.max(error) < (100 if opcode is Opcode.POWER else 8)


def grid(kind: PrimitiveType) -> np.ndarray:
    part = np.float32 if kind is P.C64 else np.float64
    info = np.finfo(part)
    ends = [info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal]
    numbers = np.array([0, -0.0, 1, -1, 0.5, -2.25, np.inf, -np.inf, np.nan, 30, *ends], part)
    z = np.empty((numbers.size, numbers.size), kind.numpy)
    z.real, z.imag = numbers[:, None], numbers
    return z.reshape(-1)


@pytest.mark.parametrize("kind", [P.C64, P.C128], ids=str)
@pytest.mark.parametrize("opcode", UNARY, ids=str)
def test_ends_and_axes(opcode: Opcode, kind: PrimitiveType) -> None:
    z = grid(kind)
    got, want = native(opcode, [z]), evaluated(opcode, [z])
    info = np.finfo(z.real.dtype)
    # Near the end of the range a result is finite or infinite by the rounding of single steps.
    for x, y in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        np.testing.assert_array_equal(np.isinf(x), np.isinf(y))
        if opcode not in OPEN_SIGNS:
            np.testing.assert_array_equal(x[np.isinf(x)], y[np.isinf(y)])
    finite = np.isfinite(want)
    distance = np.abs(got[finite] - want[finite])
    assert np.all(distance <= 64 * info.eps * np.abs(want[finite]) + 4 * info.tiny)
    real = (z.imag == 0) & finite & ~np.isnan(z.real)
    signed = (Opcode.SINE, Opcode.COSINE, Opcode.TAN, Opcode.SIGN, Opcode.LOGISTIC)
    if opcode not in signed:
        np.testing.assert_array_equal(np.signbit(got.imag[real]), np.signbit(want.imag[real]))


def test_c128_quotients_have_the_evaluators_bits() -> None:
    z = grid(P.C128)
    rng = np.random.default_rng(0)
    x, y = rng.choice(z, 5000), rng.choice(z, 5000)
    np.testing.assert_array_equal(native(Opcode.DIVIDE, [x, y]), evaluated(Opcode.DIVIDE, [x, y]))


def test_powers_at_the_origin_and_of_zero_and_one() -> None:
    z = np.array([0, 0, 0, 0, 2 + 1j, 2 + 1j], np.complex64)
    w = np.array([0, 2, -1, 1j, 0, 1], np.complex64)
    got, want = native(Opcode.POWER, [z, w]), evaluated(Opcode.POWER, [z, w])
    np.testing.assert_array_equal(got, want)
