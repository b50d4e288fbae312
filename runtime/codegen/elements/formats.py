"""Floating-point formats of LLVM IR: their widths, and the bits and literals of numbers."""

from __future__ import annotations

import struct

import numpy as np

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """IEEE 754 format in which LLVM computes. ``mantissa`` is the number of stored mantissa bits."""

    name: str
    suffix: str
    bits: int
    mantissa: int

    @property
    def integer(self) -> str:
        """Return the integer type of the same width."""
        return f"i{self.bits}"

    @property
    def exponent(self) -> int:
        """Return the number of exponent bits."""
        return self.bits - self.mantissa - 1

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def least_normal(self) -> float:
        """Return the smallest positive normal number."""
        return 2.0 ** (1 - self.bias)

    def bits_of(self, value: float) -> int:
        """Return the bits of ``value``, rounded to the format, as an unsigned integer."""
        float_code, integer_code = {16: ("e", "H"), 32: ("f", "I"), 64: ("d", "Q")}[self.bits]
        return int(struct.unpack(f"<{integer_code}", struct.pack(f"<{float_code}", value))[0])

    def rounded(self, value: float) -> float:
        return float(np.float32(value)) if self.bits == 32 else value

    def literal(self, value: float) -> str:
        """Return the LLVM literal of ``value``, which is the hexadecimal f64 also for a float."""
        return f"0x{F64.bits_of(self.rounded(value)):016X}"


F32 = FloatFormat("float", "f32", 32, 23)
F64 = FloatFormat("double", "f64", 64, 52)
#: Formats in which numbers are stored but not computed.
F16 = FloatFormat("half", "f16", 16, 10)
BF16 = FloatFormat("bfloat", "bf16", 16, 7)


@dataclass(frozen=True, slots=True)
class VectorFormat(FloatFormat):
    """Format of vectors of ``lanes`` numbers of format ``element``, on which operations work lane by lane."""

    element: FloatFormat
    lanes: int

    @staticmethod
    def of(element: FloatFormat, lanes: int) -> VectorFormat:
        name, suffix = f"<{lanes} x {element.name}>", f"v{lanes}{element.suffix}"
        return VectorFormat(name, suffix, element.bits, element.mantissa, element, lanes)

    def literal(self, value: float) -> str:
        """Return the literal of the vector whose lanes are all ``value``."""
        return f"splat ({self.element.name} {self.element.literal(value)})"
