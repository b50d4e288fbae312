"""The element types that each elementwise opcode takes: the table of XLA's operation semantics and shape inference.

The verifier must refuse all others (test_refused.py), and every allowed pair is computed (test_elementwise.py).
"""

from __future__ import annotations

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS, SIGNED
from tests.spmd.op_matrix.values import ALL_TYPES

_PRED = ("pred",)
_WHOLE = tuple(INTEGERS)
_FLOAT = tuple(FLOATS)
_COMPLEX = tuple(COMPLEX)
_SIGNED = tuple(SIGNED)

FLOATS_ALONE = _FLOAT
INEXACT = (*_FLOAT, *_COMPLEX)
REAL = (*_WHOLE, *_FLOAT)
NUMBERS = (*REAL, *_COMPLEX)
BITS = (*_PRED, *_WHOLE)
ORDERED = (*_PRED, *REAL)
SIGNED_OR_COMPLEX = (*_SIGNED, *INEXACT)

UNARY: dict[str, tuple[str, ...]] = {
    "abs": SIGNED_OR_COMPLEX,
    "negate": NUMBERS,
    "sign": SIGNED_OR_COMPLEX,
    "not": BITS,
    "popcnt": _WHOLE,
    "count-leading-zeros": _WHOLE,
    "real": INEXACT,
    "imag": INEXACT,
    "is-finite": FLOATS_ALONE,
    "ceil": FLOATS_ALONE,
    "floor": FLOATS_ALONE,
    "round-nearest-afz": FLOATS_ALONE,
    "round-nearest-even": FLOATS_ALONE,
    "cbrt": FLOATS_ALONE,
    "erf": FLOATS_ALONE,
    **dict.fromkeys(
        (
            "acos", "acosh", "asin", "asinh", "atanh", "cosh", "cosine", "exponential",
            "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sine", "sinh", "sqrt", "tan", "tanh",
        ),
        INEXACT,
    ),
}  # fmt: skip

BINARY: dict[str, tuple[str, ...]] = {
    "add": ALL_TYPES,
    "multiply": ALL_TYPES,
    "mulhi": _WHOLE,
    "subtract": NUMBERS,
    "divide": NUMBERS,
    "remainder": REAL,
    "power": NUMBERS,
    "atan2": INEXACT,
    "maximum": ORDERED,
    "minimum": ORDERED,
    "and": BITS,
    "or": BITS,
    "xor": BITS,
    "shift-left": _WHOLE,
    "shift-right-arithmetic": _WHOLE,
    "shift-right-logical": _WHOLE,
    "complex": ("f32", "f64"),
}

#: Operand type -> result type where they differ.
RESULT = {
    "is-finite": dict.fromkeys(FLOATS_ALONE, "pred"),
    "abs": COMPLEX,
    "real": COMPLEX,
    "imag": COMPLEX,
    "complex": {"f32": "c64", "f64": "c128"},
}


def result_type(opcode: str, kind: str) -> str:
    return RESULT.get(opcode, {}).get(kind, kind)


#: Opcodes that are in neither table and do not take every element type.
_OTHERS: dict[str, tuple[str, ...]] = {
    "after-all": (),
    "partition-id": ("u32",),
    "replica-id": ("u32",),
    "rng-get-and-update-state": ("u64",),
    "iota": NUMBERS,
    "rng": REAL,
    "rng-bit-generator": REAL,
    "clamp": (*_PRED, *REAL),
    "bitcast-convert": (*_PRED, *REAL),
    "reduce-precision": FLOATS_ALONE,
    "stochastic-convert": FLOATS_ALONE,
    "batch-norm-training": FLOATS_ALONE,
    "batch-norm-inference": FLOATS_ALONE,
    "batch-norm-grad": FLOATS_ALONE,
    "cholesky": INEXACT,
    "triangular-solve": INEXACT,
    "fft": ("f32", "f64", *_COMPLEX),
}


def types_of(opcode: str) -> tuple[str, ...]:
    """Element types of the data that ``opcode`` takes (of its result, where it takes none)."""
    for table in (UNARY, BINARY, _OTHERS):
        if opcode in table:
            return table[opcode]
    return ALL_TYPES
