"""Tests that native element operations write the evaluator's bits, from any strides, and in place where they may."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from runtime.codegen.ir.element_operations import has_operation
from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.program.scalar_program import ElementSignature
from runtime.program.strides import merged_dims
from spmd.hlo import Attrs, Opcode
from spmd.shape import PrimitiveType
from tests.runtime.cpu.kernels.loop.element_signatures import (
    SIGNATURES,
    canonical,
    reference,
    values,
)

P = PrimitiveType
#: Functions of floats that native code approximates itself; tests/runtime/codegen/elements judges them.
APPROXIMATED = {opcode for opcode, _ in FLOAT_FUNCTIONS}
#: One type for each kind of number, width and sign, since compiling takes its time.
KINDS = (P.PRED, P.S8, P.U32, P.S64, P.F16, P.BF16, P.F32, P.F64)
NATIVE = [
    (opcode, kinds, result, attrs)
    for opcode, kinds, result, attrs in SIGNATURES
    if {*kinds, result} <= {*KINDS}
    and has_operation(ElementSignature(opcode, kinds, result, attrs))
    and not (kinds[0].is_floating and opcode in APPROXIMATED)
]


def may_overwrite(signature: ElementSignature) -> list[int]:
    size = signature.result.byte_size
    return [i for i, kind in enumerate(signature.operands) if kind.byte_size == size]


def run(signature: ElementSignature, out: np.ndarray, operands: list[np.ndarray]) -> None:
    bind_operation(signature, operands, out)()


def edges(kind: PrimitiveType, seed: int) -> np.ndarray:
    """Return ``values``, with the ends of integer types among the integers and among the floats."""
    x = values(kind, seed)
    with np.errstate(all="ignore"):
        if kind.is_integer:
            info = np.iinfo(kind.numpy)
            x.reshape(-1)[6:10] = np.array([info.min, info.max, 0, info.max // 2], kind.numpy)
        elif kind.is_floating:
            ends = [-129, 127.9, 2.0**31, -(2.0**31), 2.0**63, 0.5, 1.5, 2.5]
            x.reshape(-1)[6:14] = np.array(ends, np.float64).astype(kind.numpy)
    return np.random.default_rng(seed).permutation(x.reshape(-1)).reshape(x.shape)


@pytest.mark.parametrize("form", NATIVE, ids=lambda s: f"{s[0]}-{'-'.join(map(str, s[1]))}-{s[2]}")
def test_same_bits_as_the_evaluator(
    form: tuple[Opcode, tuple[PrimitiveType, ...], PrimitiveType, Attrs],
) -> None:
    signature = ElementSignature(*form)
    operands = [edges(kind, seed) for seed, kind in enumerate(form[1])]
    with np.errstate(all="ignore"):
        want = reference(signature, operands)
        out = np.empty(want.shape, signature.result.numpy)
        run(signature, out, operands)
        assert canonical(out) == canonical(want)
        for position in may_overwrite(signature):
            copies = [operand.copy() for operand in operands]
            target = copies[position].view(signature.result.numpy)
            run(signature, target, copies)
            assert canonical(target) == canonical(want), f"over operand {position}"


#: Functions of complex numbers that tests/runtime/codegen/elements/test_complex_functions.py judges.
FUNCTIONS = (Opcode.DIVIDE, Opcode.EXPONENTIAL, Opcode.LOG, Opcode.SQRT, Opcode.TANH)
COMPLEX = [
    signature
    for form in SIGNATURES
    if any(kind.is_complex for kind in (*form[1], form[2]))
    and form[0] not in FUNCTIONS
    and has_operation(signature := ElementSignature(*form))
]


@pytest.mark.parametrize("signature", COMPLEX, ids=lambda s: f"{s.opcode}-{s.operands}-{s.result}")
def test_complex_numbers(signature: ElementSignature) -> None:
    """Infinities, nan and zeros of either sign are among the operands.

    NumPy rounds products and lengths in its own way.
    """
    operands = []
    for seed, kind in enumerate(signature.operands):
        x = values(kind, seed)
        if kind.is_complex:
            part = P.F32 if kind is P.C64 else P.F64
            x.real, x.imag = edges(part, seed + 5), edges(part, seed + 6)
        operands.append(x)
    with np.errstate(all="ignore"):
        want = reference(signature, operands)
        out = np.empty(want.shape, signature.result.numpy)
        run(signature, out, operands)
        if signature.opcode in (Opcode.MULTIPLY, Opcode.ABS):
            np.testing.assert_array_equal(np.isfinite(out), np.isfinite(want))
            finite = np.isfinite(want)
            eps = float(np.finfo(out.dtype).eps)
            np.testing.assert_allclose(out[finite], want[finite], rtol=4 * eps, atol=16 * eps)
        else:
            assert canonical(out) == canonical(want)
        for position in may_overwrite(signature):
            copies = [operand.copy() for operand in operands]
            target = copies[position].view(signature.result.numpy)
            run(signature, target, copies)
            assert canonical(target) == canonical(out), f"over operand {position}"


STRIDED = {
    "packed": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: x[::-1, ::-1],
    "every other": lambda x: x[:, ::2],
    "a row, repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "a column, repeated": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "an element, repeated": lambda x: np.broadcast_to(x[:1, :1], x.shape),
}


@pytest.mark.parametrize("one", STRIDED)
@pytest.mark.parametrize("other", STRIDED)
def test_strides(one: str, other: str) -> None:
    x, y = (np.random.default_rng(i).integers(0, 40, (6, 8)).astype(np.uint32) for i in range(2))
    x, y = STRIDED[one](x), STRIDED[other](y)
    columns = min(x.shape[1], y.shape[1])
    x, y = x[:, :columns], y[:, :columns]
    out = np.zeros((6, columns), np.uint32)
    run(ElementSignature(Opcode.SHIFT_LEFT, (P.U32, P.U32), P.U32), out, [x, y])
    want = np.where(y < 32, x.astype(np.uint64) << np.minimum(y, 31), 0).astype(np.uint32)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dims", [(), (1,), (0, 3), (2, 1, 3, 1, 2, 2)])
def test_sizes(dims: tuple[int, ...]) -> None:
    x = np.full(dims, -3.7, np.float32)
    out = np.zeros(dims, np.int8)
    run(ElementSignature(Opcode.CONVERT, (P.F32,), P.S8), out, [x])
    assert (out == -3).all()


def test_dimensions_are_merged_where_all_arrays_allow_it() -> None:
    assert merged_dims((2, 3, 4), [(48, 16, 4), (48, 16, 4)]) == ([24], [[4], [4]])
    assert merged_dims((2, 3, 4), [(48, 16, 4), (0, 16, 4)]) == ([2, 12], [[48, 4], [0, 4]])
    assert merged_dims((2, 1, 4), [(16, 0, 4)]) == ([8], [[4]])
    assert merged_dims((1, 1), [(0, 0)]) == ([], [[]])
