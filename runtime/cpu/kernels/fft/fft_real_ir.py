"""Native code that converts between the transform of a real line and that of its pairs as half as many complex numbers.

Z is the transform of x[2 j] + i x[2 j + 1], of h points, and X that of x, of which elements 0 to h suffice:

    E = (Z[k] + conj Z[h - k]) / 2           element k of the transform of x[2 j]
    O = -i (Z[k] - conj Z[h - k]) / 2        element k of the transform of x[2 j + 1]
    w = exp(-pi i k / h)
    X[k] = E + w O
    X[h - k] = conj(E - w O)
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import IntLike
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import FloatFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.fft.fft_ir import (
    in_all_lanes,
    load_complex,
    product,
    store_complex,
    times_minus_i,
)
from runtime.program.argument_record import Address, Record, Word, record
from spmd.lazy_dataclass import dataclass

FUNCTION = "spmd_fft_real"


@dataclass(frozen=True, slots=True)
class RealVariant:
    """Variant of the code for parts of the format ``part_format``.

    It computes X from Z, or, if ``inverse``, 2 Z with swapped parts from X.
    """

    part_format: FloatFormat
    inverse: bool


@record
class RealRecord(Record):
    """Record of a conversion in place of the elements 0 to ``half`` of the buffer.

    ``offsets`` is the address of these elements' offsets in bytes, and ``twiddles`` that of w for k = 1, .., half / 2.
    """

    buffer: Address
    half: Word
    twiddles: Address
    offsets: Address


@cache
def real_code(variant: RealVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``variant``, which takes the address of a RealRecord."""
    return host_jit().compile(_Real(variant).text(), (FUNCTION,), passes=Passes.TIDY)


class _Real:
    """Writer of the function."""

    buffer: Pointer
    offsets: Pointer

    def __init__(self, variant: RealVariant) -> None:
        self.variant = variant
        self.f = FunctionWriter(FUNCTION, RealRecord)

    def text(self) -> str:
        f, rec, fmt = self.f, self.f.record, self.variant.part_format
        self.buffer, half, twiddles, self.offsets = rec.buffer, rec.half, rec.twiddles, rec.offsets
        self.ends(self.pointer_to(0), self.pointer_to(half))
        pairs = half // 2
        cursors = {0: Cursor(twiddles, 2 * fmt.bits // 8)}
        with f.unless_zero(pairs), f.cursor_loop(pairs, cursors) as (number, at):
            k = number + 1
            low, high = self.pointer_to(k), self.pointer_to(half - k)
            make = _inverse_pair if self.variant.inverse else _pair
            x, y = make(load_complex(low, fmt), load_complex(high, fmt), in_all_lanes(at[0], fmt))
            store_complex(x, low)
            store_complex(y, high)
        return f.end()

    def ends(self, first: Pointer, last: Pointer) -> None:
        """Write the conversion of the elements 0 and h.

        X[0] and X[h] are real: the sum and the difference of the parts of Z[0].
        """
        fmt = self.variant.part_format
        if self.variant.inverse:
            real, other = load_complex(first, fmt).re, load_complex(last, fmt).re
            total = real + other
            store_complex(Complex(real - other, total), first)
            return
        ends = load_complex(first, fmt)
        zero = ends.re.constant(0.0)
        store_complex(Complex(ends.re + ends.im, zero), first)
        store_complex(Complex(ends.re - ends.im, zero), last)

    def pointer_to(self, number: IntLike) -> Pointer:
        """Return the address of element ``number`` in the buffer."""
        return self.buffer.at(self.offsets.element("i64", number).word())


def _pair(x: Complex, y: Complex, twiddle: Complex) -> tuple[Complex, Complex]:
    """Return X[k] and X[h - k], given Z[k], Z[h - k] and w."""
    y = _conjugate(y)
    even = (x + y).times(0.5)
    odd = times_minus_i(x - y).times(0.5)
    rotated = product(odd, twiddle)
    return even + rotated, _conjugate(even - rotated)


def _inverse_pair(x: Complex, y: Complex, twiddle: Complex) -> tuple[Complex, Complex]:
    """Return 2 Z[k] and 2 Z[h - k] with swapped parts, given X[k], X[h - k] and w.

    They are even + i odd and conj(even) + i conj(odd).
    """
    y = _conjugate(y)
    even = x + y
    odd = product(x - y, _conjugate(twiddle))
    rotated = times_minus_i(odd)
    low = even - rotated
    high = _conjugate(even + rotated)
    return Complex(low.im, low.re), Complex(high.im, high.re)


def _conjugate(x: Complex) -> Complex:
    return Complex(x.re, -x.im)
