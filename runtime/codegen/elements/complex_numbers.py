"""Complex numbers in straight-line LLVM IR: pairs of floats, stored as one integer with the real part in the low bits.

An element of a complex array is thus one value like any other. Loops load and store it with one access, and split it in
registers.
"""

from __future__ import annotations

from typing import TypeAlias

from runtime.codegen.elements.builder import Bool, Float, Int
from runtime.codegen.elements.formats import F32, F64, FloatFormat
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Format of the parts of each complex type.
PARTS = {PrimitiveType.C64: F32, PrimitiveType.C128: F64}

Scalar: TypeAlias = "Float | float"


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """Complex number re + i im."""

    re: Float
    im: Float

    @staticmethod
    def of(element: Int) -> Complex:
        """Return the complex number that ``element`` stores."""
        half = element.width // 2
        fmt = F32 if half == 32 else F64
        low = element.resized(fmt.integer)
        high = (element >> half).resized(fmt.integer)
        return Complex(low.as_float(fmt), high.as_float(fmt))

    def element(self) -> Int:
        """Return the integer that stores the number."""
        fmt = self.re.format
        integer = f"i{2 * fmt.bits}"
        low, high = self.re.bits().resized(integer), self.im.bits().resized(integer)
        return low | (high << fmt.bits)

    @property
    def format(self) -> FloatFormat:
        return self.re.format

    def to(self, target: FloatFormat) -> Complex:
        return Complex(self.re.to(target), self.im.to(target))

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def __mul__(self, other: Complex) -> Complex:
        re = self.re * other.re - self.im * other.im
        return Complex(re, self.re * other.im + self.im * other.re)

    def times(self, factor: Scalar) -> Complex:
        """Multiply both parts by a real number."""
        return Complex(self.re * factor, self.im * factor)


def chosen(condition: Bool, on_true: Complex, on_false: Complex) -> Complex:
    return Complex(
        condition.choose(on_true.re, on_false.re), condition.choose(on_true.im, on_false.im)
    )


def infinite(x: Float) -> Bool:
    return x.abs().equals(float("inf"))


def not_finite(x: Float) -> Bool:
    """Return whether x is infinite or nan."""
    return (x - x).is_nan()
