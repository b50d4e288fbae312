"""Elementwise functions of integers and of pred, on Python's unbounded integers; the caller wraps to the type's width."""

from __future__ import annotations

from collections.abc import Callable

from tests.spmd.op_matrix.formats import INTEGERS, SIGNED, bounds

#: (operands, ..., kind) -> exact integer.
WholeFunction = Callable[..., int]


def divide(x: int, y: int, kind: str) -> int:
    """Toward zero; by zero all ones."""
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(x: int, y: int, kind: str) -> int:
    """Return the remainder, with the dividend's sign; by zero it is the dividend."""
    return x if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


def power(x: int, y: int, kind: str) -> int:
    """Negative exponents: the exact value rounded to zero, which is 0 but for the bases 1 and -1; 0 to them is 0."""
    if y < 0:
        return 0 if abs(x) != 1 else x if y % 2 else 1
    return pow(x, y, 1 << INTEGERS[kind])


def unsigned(x: int, kind: str) -> int:
    """The bits of ``x`` read as a natural number."""
    return x % (1 << INTEGERS[kind])


def shift_left(x: int, by: int, kind: str) -> int:
    return x << by if in_range(by, kind) else 0


def shift_right_arithmetic(x: int, by: int, kind: str) -> int:
    """The top bit comes in, also for unsigned types; a distance out of range leaves nothing but it."""
    bits = INTEGERS[kind]
    pattern = unsigned(x, kind)
    signed = pattern - (1 << bits) if pattern >> bits - 1 else pattern
    return signed >> (by if in_range(by, kind) else bits)


def shift_right_logical(x: int, by: int, kind: str) -> int:
    return unsigned(x, kind) >> by if in_range(by, kind) else 0


def in_range(by: int, kind: str) -> bool:
    """The distance is read as a natural number."""
    return 0 <= by < INTEGERS[kind]


BINARY: dict[str, WholeFunction] = {
    "add": lambda x, y, kind: x + y,
    "subtract": lambda x, y, kind: x - y,
    "multiply": lambda x, y, kind: x * y,
    "mulhi": lambda x, y, kind: (x * y) >> INTEGERS[kind],
    "divide": divide,
    "remainder": remainder,
    "power": power,
    "maximum": lambda x, y, kind: max(x, y),
    "minimum": lambda x, y, kind: min(x, y),
    "and": lambda x, y, kind: x & y,
    "or": lambda x, y, kind: x | y,
    "xor": lambda x, y, kind: x ^ y,
    "shift-left": shift_left,
    "shift-right-arithmetic": shift_right_arithmetic,
    "shift-right-logical": shift_right_logical,
}

UNARY: dict[str, WholeFunction] = {
    "abs": lambda x, kind: abs(x),
    "negate": lambda x, kind: -x,
    "sign": lambda x, kind: (x > 0) - (x < 0),
    "not": lambda x, kind: ~x,
    "popcnt": lambda x, kind: bin(unsigned(x, kind)).count("1"),
    "count-leading-zeros": lambda x, kind: INTEGERS[kind] - unsigned(x, kind).bit_length(),
}

#: pred: addition and multiplication are or and and.
PRED_BINARY: dict[str, Callable[[bool, bool], bool]] = {
    "add": lambda x, y: x or y,
    "multiply": lambda x, y: x and y,
    "maximum": lambda x, y: x or y,
    "minimum": lambda x, y: x and y,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "xor": lambda x, y: x != y,
}


def clamp_to(x: int, kind: str) -> int:
    low, high = bounds(kind)
    return max(low, min(high, x))


def is_signed(kind: str) -> bool:
    return kind in SIGNED
