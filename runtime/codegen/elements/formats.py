"""Floating-point formats of LLVM IR: their widths, the bits and the literals of numbers."""

from __future__ import annotations

import struct

import numpy as np

from spmd.lazy_dataclass import dataclass


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
        float_code, integer_code = {16: ("e", "H"), 32: ("f", "I"), 64: ("d", "Q")}[self.bits]
        return int(struct.unpack(f"<{integer_code}", struct.pack(f"<{float_code}", value))[0])

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


@dataclass(frozen=True, slots=True)
class VectorFormat(FloatFormat):
    """Vectors of ``lanes`` numbers of format ``element``, on which operations work lane by lane."""

    element: FloatFormat
    lanes: int

    @staticmethod
    def of(element: FloatFormat, lanes: int) -> VectorFormat:
        name, suffix = f"<{lanes} x {element.name}>", f"v{lanes}{element.suffix}"
        return VectorFormat(name, suffix, element.bits, element.mantissa, element, lanes)

    def literal(self, value: float) -> str:
        """Return the literal of a vector all of whose lanes are ``value``."""
        return f"splat ({self.element.name} {self.element.literal(value)})"
