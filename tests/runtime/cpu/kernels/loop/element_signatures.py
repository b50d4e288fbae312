"""Signatures of elementwise operations, values to try them on, and what the evaluator gives."""

from __future__ import annotations

import numpy as np

from runtime.emit.elementwise import is_elementwise
from runtime.program.scalar_program import ElementSignature
from spmd.evaluator.evaluator import evaluate_instruction
from spmd.hlo import NO_ATTRS, Attrs, HloInstruction, Opcode
from spmd.hlo.opcode import CompareAttrs, ReducePrecisionAttrs
from spmd.ops.opdef import OPS
from spmd.shape import ArrayShape, PrimitiveType

P = PrimitiveType
TYPES = (P.PRED, P.S8, P.U8, P.S32, P.U32, P.S64, P.F16, P.BF16, P.F32, P.F64, P.C64, P.S4)
FLOATS = (P.F16, P.BF16, P.F32, P.F64)
TERNARY = {Opcode.SELECT: 3, Opcode.CLAMP: 3}


def values(kind: PrimitiveType, seed: int, dims: tuple[int, ...] = (5, 7)) -> np.ndarray:
    """Ordinary values, and for floats zeros of both signs, infinities, nan and numbers beyond integers."""
    rng = np.random.default_rng(seed)
    if kind is P.PRED:
        return rng.random(dims) < 0.5
    if kind.is_integer:
        low, high = (-4, 4) if kind.is_signed_integer else (0, 8)
        return rng.integers(low, high, dims).astype(kind.numpy)
    x = rng.standard_normal(dims) * 3
    if kind.is_complex:
        return (x + 1j * rng.standard_normal(dims)).astype(kind.numpy)
    x.reshape(-1)[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e9]
    with np.errstate(all="ignore"):
        return rng.permutation(x.reshape(-1)).reshape(dims).astype(kind.numpy)


def signatures() -> list[tuple[Opcode, tuple[PrimitiveType, ...], PrimitiveType, Attrs]]:
    """Every elementwise opcode with the operand and result types it takes."""
    found: list[tuple[Opcode, tuple[PrimitiveType, ...], PrimitiveType, Attrs]] = []
    integers = [t for t in TYPES if t.is_integer]
    for opcode in OPS:
        if not is_elementwise(opcode) or opcode is Opcode.STOCHASTIC_CONVERT:
            continue
        arity = TERNARY.get(opcode) or OPS[opcode].arity or 2
        for kind in TYPES:
            if opcode is Opcode.COMPARE:
                for direction in ("EQ", "NE") if kind.is_complex else ("EQ", "LT", "GE"):
                    found.append((opcode, (kind, kind), P.PRED, CompareAttrs(direction)))
                if kind in FLOATS:
                    found.append((opcode, (kind, kind), P.PRED, CompareAttrs("LT", "TOTALORDER")))
            elif opcode is Opcode.CONVERT:
                found.extend((opcode, (kind,), target, NO_ATTRS) for target in TYPES)
            elif opcode is Opcode.SELECT:
                found.append((opcode, (P.PRED, kind, kind), kind, NO_ATTRS))
            elif opcode is Opcode.REDUCE_PRECISION:
                if kind in FLOATS:
                    found.append((opcode, (kind,), kind, ReducePrecisionAttrs(5, 10)))
            elif opcode is Opcode.COMPLEX:
                if kind is P.F32:
                    found.append((opcode, (kind, kind), P.C64, NO_ATTRS))
            elif opcode in (Opcode.REAL, Opcode.IMAG):
                if kind is P.C64:
                    found.append((opcode, (kind,), P.F32, NO_ATTRS))
            elif opcode is Opcode.IS_FINITE:
                if kind in FLOATS:
                    found.append((opcode, (kind,), P.PRED, NO_ATTRS))
            elif _takes(opcode, kind, integers):
                result = P.F32 if opcode is Opcode.ABS and kind is P.C64 else kind
                found.append((opcode, (kind,) * arity, result, NO_ATTRS))
    return found


_INTEGER_ONLY = {
    Opcode.COUNT_LEADING_ZEROS,
    Opcode.POPCNT,
    Opcode.SHIFT_LEFT,
    Opcode.SHIFT_RIGHT_ARITHMETIC,
    Opcode.SHIFT_RIGHT_LOGICAL,
}
_LOGIC = {Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.NOT}
_ARITHMETIC = {
    Opcode.ADD,
    Opcode.SUBTRACT,
    Opcode.MULTIPLY,
    Opcode.DIVIDE,
    Opcode.REMAINDER,
    Opcode.POWER,
    Opcode.MAXIMUM,
    Opcode.MINIMUM,
    Opcode.CLAMP,
    Opcode.ABS,
    Opcode.NEGATE,
    Opcode.SIGN,
}
_COMPLEX_TOO = {
    Opcode.ADD,
    Opcode.SUBTRACT,
    Opcode.MULTIPLY,
    Opcode.DIVIDE,
    Opcode.ABS,
    Opcode.NEGATE,
    Opcode.EXPONENTIAL,
    Opcode.LOG,
    Opcode.SQRT,
    Opcode.TANH,
}


def _takes(opcode: Opcode, kind: PrimitiveType, integers: list[PrimitiveType]) -> bool:
    if opcode in _INTEGER_ONLY:
        return kind in integers
    if opcode in _LOGIC:
        return kind in integers or kind is P.PRED
    if kind is P.PRED:
        return opcode in (Opcode.ADD, Opcode.MULTIPLY, Opcode.MAXIMUM, Opcode.MINIMUM)
    if kind is P.C64:
        return opcode in _COMPLEX_TOO
    return kind in FLOATS or opcode in _ARITHMETIC


SIGNATURES = signatures()


def reference(signature: ElementSignature, operands: list[np.ndarray]) -> np.ndarray:
    instruction = HloInstruction(
        signature.opcode, ArrayShape(signature.result, operands[0].shape), attrs=signature.attrs
    )
    value = evaluate_instruction(instruction, operands)
    assert isinstance(value, np.ndarray)
    return value


def canonical(x: np.ndarray) -> bytes:
    """Bits, with every nan alike."""
    if x.dtype.kind in "iub" or x.dtype.itemsize == 1:
        return x.tobytes()
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    parts = wide.view(np.float64)
    return np.where(np.isnan(parts), np.nan, parts).tobytes()
