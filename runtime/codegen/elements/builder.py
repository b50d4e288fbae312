"""Straight-line LLVM IR written as arithmetic: ``y = x * x + 1.0`` appends its instructions to the code of ``x``.

There are no branches, no calls except LLVM's intrinsics, and no operations whose result may be poison (conversions of
values that no integer holds, excessive shifts): the loop vectorizer handles all of it, and a select drops unused
results.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """IEEE 754 type in which LLVM computes. ``mantissa``: number of stored bits."""

    name: str
    suffix: str
    bits: int
    mantissa: int

    @property
    def integer(self) -> str:
        """The integer type of the same width."""
        return f"i{self.bits}"

    @property
    def exponent(self) -> int:
        return self.bits - self.mantissa - 1

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    def bits_of(self, value: float) -> int:
        """Return ``value``, rounded to the format, as an unsigned integer."""
        form, whole = {16: ("e", "H"), 32: ("f", "I"), 64: ("d", "Q")}[self.bits]
        return int(struct.unpack(f"<{whole}", struct.pack(f"<{form}", value))[0])

    def rounded(self, value: float) -> float:
        return float(np.float32(value)) if self.bits == 32 else value

    def literal(self, value: float) -> str:
        """Return the LLVM literal; for both formats it has the bits of a double."""
        return f"0x{F64.bits_of(self.rounded(value)):016X}"


F32 = FloatFormat("float", "f32", 32, 23)
F64 = FloatFormat("double", "f64", 64, 52)
#: Storage formats, in which nothing is computed.
F16 = FloatFormat("half", "f16", 16, 10)
BF16 = FloatFormat("bfloat", "bf16", 16, 7)

#: Arithmetic accepts numbers as constants.
Real: TypeAlias = "Float | float"
Whole: TypeAlias = "Int | int"


@dataclass(frozen=True, slots=True)
class Instructions:
    """Special instructions of the processor.

    fused: multiplies and adds. permutes: selects a vector of numbers from a table of 32 in registers. scales:
    multiplies by a power of two that need not be representable. pairs: multiplies pairs of 16-bit integers and adds
    both products to a 32-bit integer. rounds: converts an f32 to bf16 (a GPU, whose own nan has ones in the lower
    half).
    """

    fused: bool = False
    permutes: bool = False
    scales: bool = False
    pairs: bool = False
    rounds: bool = False


#: No special instructions, as on every processor.
PLAIN = Instructions()


@dataclass(frozen=True, slots=True)
class Lines:
    """Function body, and the globals that it needs in the module."""

    body: str
    globals: tuple[str, ...] = ()


class Code:
    """Sequence of lines, with the constants and functions of the module that they need."""

    def __init__(self, instructions: Instructions = Instructions()) -> None:
        self.instructions = instructions
        self.globals: list[str] = []
        self._lines: list[str] = []

    def append(self, expression: str) -> str:
        """Append ``expression`` and return its register."""
        name = f"%t{len(self._lines)}"
        self._lines.append(f"{name} = {expression}")
        return name

    def text(self, result: Float | Int | Bool, name: str = "%r") -> str:
        """Return all lines; the last one defines ``name``. A predicate becomes a byte, as in memory."""
        if isinstance(result, Bool):
            last = f"{name} = zext i1 {result.name} to i8"
        else:
            last = f"{name} = bitcast {result.type} {result.name} to {result.type}"
        return "\n  ".join([*self._lines, last])

    def lines(self, result: Float | Int | Bool, name: str = "%r") -> Lines:
        return Lines(self.text(result, name), tuple(self.globals))


@dataclass(frozen=True, slots=True, eq=False)
class Float:
    """Number of ``format``, in a register or a constant."""

    code: Code
    format: FloatFormat
    name: str

    @property
    def type(self) -> str:
        return self.format.name

    def _made(self, expression: str) -> Float:
        return Float(self.code, self.format, self.code.append(expression))

    def constant(self, value: float) -> Float:
        return Float(self.code, self.format, self.format.literal(value))

    def _float(self, other: Real) -> Float:
        return other if isinstance(other, Float) else self.constant(other)

    def _binary(self, instruction: str, other: Real) -> Float:
        return self._made(f"{instruction} {self.type} {self.name}, {self._float(other).name}")

    def __add__(self, other: Real) -> Float:
        return self._binary("fadd", other)

    def __sub__(self, other: Real) -> Float:
        return self._binary("fsub", other)

    def __mul__(self, other: Real) -> Float:
        return self._binary("fmul", other)

    def __truediv__(self, other: Real) -> Float:
        return self._binary("fdiv", other)

    def __radd__(self, other: float) -> Float:
        return self.constant(other) + self

    def __rsub__(self, other: float) -> Float:
        return self.constant(other) - self

    def __rmul__(self, other: float) -> Float:
        return self.constant(other) * self

    def __rtruediv__(self, other: float) -> Float:
        return self.constant(other) / self

    def __neg__(self) -> Float:
        return self._made(f"fneg {self.type} {self.name}")

    def _compared(self, condition: str, other: Real) -> Bool:
        other = self._float(other)
        line = f"fcmp {condition} {self.type} {self.name}, {other.name}"
        return Bool(self.code, self.code.append(line))

    def __lt__(self, other: Real) -> Bool:
        return self._compared("olt", other)

    def __le__(self, other: Real) -> Bool:
        return self._compared("ole", other)

    def __gt__(self, other: Real) -> Bool:
        return self._compared("ogt", other)

    def __ge__(self, other: Real) -> Bool:
        return self._compared("oge", other)

    def equals(self, other: Real) -> Bool:
        return self._compared("oeq", other)

    def is_nan(self) -> Bool:
        return self._compared("uno", self)

    def times_plus(self, factor: Real, term: Real) -> Float:
        """Compute self * factor + term, rounded once or twice, whichever is faster."""
        return self._intrinsic("fmuladd", self._float(factor), self._float(term))

    def _intrinsic(self, name: str, *others: Float) -> Float:
        arguments = ", ".join(f"{x.type} {x.name}" for x in (self, *others))
        return self._made(f"call {self.type} @llvm.{name}.{self.format.suffix}({arguments})")

    def abs(self) -> Float:
        return self._intrinsic("fabs")

    def sqrt(self) -> Float:
        return self._intrinsic("sqrt")

    def rounded(self) -> Float:
        """Round to the nearest integer, ties to even."""
        return self._intrinsic("rint")

    def truncated(self) -> Float:
        """Round to an integer towards zero."""
        return self._intrinsic("trunc")

    def scaled(self, exponent: Int) -> Float:
        """Compute self 2^exponent, rounded once; needs a processor with ``scales``."""
        exponent = exponent.resized("i32")
        name = f"@llvm.ldexp.{self.format.suffix}.i32"
        return self._made(f"call {self.type} {name}({self.type} {self.name}, i32 {exponent.name})")

    def with_sign_of(self, other: Float) -> Float:
        return self._intrinsic("copysign", other)

    def bits(self) -> Int:
        kind = self.format.integer
        return Int(self.code, kind, self.code.append(f"bitcast {self.type} {self.name} to {kind}"))

    def to(self, target: FloatFormat) -> Float:
        if target is self.format:
            return self
        word = "fpext" if target.bits > self.format.bits else "fptrunc"
        line = f"{word} {self.type} {self.name} to {target.name}"
        return Float(self.code, target, self.code.append(line))

    def product_error(self, factor: Float, product: Float) -> Float:
        """Compute self * factor - product, where product is their rounded product; exact except for underflow.

        Without a fused instruction it uses T. J. Dekker's splitting ("A floating-point technique for extending the
        available precision", 1971), in which no part may exceed 2^(emax - mantissa / 2 - 1).
        """
        if self.code.instructions.fused:
            return self._intrinsic("fma", factor, -product)
        (a, b), (c, d) = self.halves(), factor.halves()
        return ((a * c - product) + a * d + b * c) + b * d

    def halves(self) -> tuple[Float, Float]:
        """Split the number into two of half the digits, whose sum is the number."""
        scaled = self * (2.0 ** ((self.format.mantissa + 2) // 2) + 1)
        high = scaled - (scaled - self)
        return high, self - high


@dataclass(frozen=True, slots=True, eq=False)
class Int:
    """Integer of ``type`` (i8 .. i64), in a register or a constant; arithmetic wraps."""

    code: Code
    type: str
    name: str

    @property
    def width(self) -> int:
        return int(self.type[1:])

    def _made(self, expression: str) -> Int:
        return Int(self.code, self.type, self.code.append(expression))

    def constant(self, value: int) -> Int:
        return Int(self.code, self.type, str(value))

    def _int(self, other: Whole) -> Int:
        return other if isinstance(other, Int) else self.constant(other)

    def _binary(self, instruction: str, other: Whole) -> Int:
        return self._made(f"{instruction} {self.type} {self.name}, {self._int(other).name}")

    def __add__(self, other: Whole) -> Int:
        return self._binary("add", other)

    def __sub__(self, other: Whole) -> Int:
        return self._binary("sub", other)

    def __rsub__(self, other: int) -> Int:
        return self.constant(other) - self

    def __mul__(self, other: Whole) -> Int:
        return self._binary("mul", other)

    def __and__(self, other: Whole) -> Int:
        return self._binary("and", other)

    def __or__(self, other: Whole) -> Int:
        return self._binary("or", other)

    def __xor__(self, other: Whole) -> Int:
        return self._binary("xor", other)

    def __lshift__(self, distance: Whole) -> Int:
        return self._binary("shl", distance)

    def __rshift__(self, distance: Whole) -> Int:
        """Shift right with zeros."""
        return self._binary("lshr", distance)

    def signed_shift(self, distance: Whole) -> Int:
        """Shift right with copies of the sign."""
        return self._binary("ashr", distance)

    def compared(self, condition: str, other: Whole) -> Bool:
        """Compare. condition: eq, ne, or slt, ugt and the like."""
        line = f"icmp {condition} {self.type} {self.name}, {self._int(other).name}"
        return Bool(self.code, self.code.append(line))

    def least(self, other: Whole) -> Int:
        """Return the smaller one, as signed numbers."""
        return self.compared("slt", other).select(self, self._int(other))

    def greatest(self, other: Whole) -> Int:
        """Return the larger one, as signed numbers."""
        return self.compared("sgt", other).select(self, self._int(other))

    def one_bits(self) -> Int:
        return self._made(f"call {self.type} @llvm.ctpop.{self.type}({self.type} {self.name})")

    def leading_zeros(self) -> Int:
        call = f"@llvm.ctlz.{self.type}({self.type} {self.name}, i1 false)"
        return self._made(f"call {self.type} {call}")

    def as_float(self, target: FloatFormat) -> Float:
        """Return the same bits as a float."""
        line = f"bitcast {self.type} {self.name} to {target.name}"
        return Float(self.code, target, self.code.append(line))

    def resized(self, kind: str) -> Int:
        """Resize to another width: truncate or zero-extend."""
        if kind == self.type:
            return self
        word = "trunc" if int(kind[1:]) < self.width else "zext"
        return Int(self.code, kind, self.code.append(f"{word} {self.type} {self.name} to {kind}"))


@dataclass(frozen=True, slots=True, eq=False)
class Bool:
    """Condition."""

    code: Code
    name: str

    @property
    def type(self) -> str:
        return "i1"

    def _with(self, instruction: str, other: str) -> Bool:
        return Bool(self.code, self.code.append(f"{instruction} i1 {self.name}, {other}"))

    def __and__(self, other: Bool) -> Bool:
        return self._with("and", other.name)

    def __or__(self, other: Bool) -> Bool:
        return self._with("or", other.name)

    def __xor__(self, other: Bool) -> Bool:
        return self._with("xor", other.name)

    def __invert__(self) -> Bool:
        return self._with("xor", "true")

    def choose(self, on_true: Float, on_false: Real) -> Float:
        """Return ``on_true`` if the condition holds, else ``on_false``."""
        other = on_true._float(on_false)
        return on_true._made(self._select(on_true, other))

    def select(self, on_true: Int, on_false: Whole) -> Int:
        other = on_true._int(on_false)
        return on_true._made(self._select(on_true, other))

    def _select(self, on_true: Float | Int, on_false: Float | Int) -> str:
        t = on_true.type
        return f"select i1 {self.name}, {t} {on_true.name}, {t} {on_false.name}"
