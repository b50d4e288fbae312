"""Native code between the transform of a line of real numbers and that of its pairs as complex ones, half as many.

Z = transform of x[2 j] + i x[2 j + 1], h points, and X = that of x, of which 0 to h are told by the others. With
E = (Z[k] + conj Z[h - k]) / 2 and O = -i (Z[k] - conj Z[h - k]) / 2, the transforms of even and odd elements,
X[k] = E + w O and X[h - k] = conj(E - w O), where w = exp(-pi i k / h).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import IntLike
from runtime.codegen.elements.complex_numbers import Complex
from runtime.codegen.elements.formats import FloatFormat
from runtime.codegen.ir.function_writer import Cursor, FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.fft.fft_ir import (
    in_all_lanes,
    load_slot,
    multiply_add,
    product,
    store_slot,
    times_minus_i,
)

FUNCTION = "spmd_fft_real"


@dataclass(frozen=True, slots=True)
class RealForm:
    """form: of a part. inverse: Z is made of X, doubled and with its parts swapped, else X of Z."""

    form: FloatFormat
    inverse: bool


@record
class RealRecord(Record):
    """Numbers 0 to ``half`` lie at ``places``, in bytes from the buffer's beginning; what is made takes their slots.

    twiddles: w of k = 1, .., half / 2.
    """

    buffer: Address
    half: Word
    twiddles: Address
    places: Address


@cache
def real_code(form: RealForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a RealRecord."""
    return host_jit().compile(_Real(form).text(), (FUNCTION,), passes=Passes.TIDY)


class _Real:
    """Writes the function."""

    buffer: Pointer
    places: Pointer

    def __init__(self, form: RealForm) -> None:
        self.form = form
        self.f = FunctionWriter(FUNCTION, RealRecord, module=Module(multiply_add(form.form)))

    def text(self) -> str:
        f, rec, form = self.f, self.f.record, self.form.form
        self.buffer, half, twiddles, self.places = rec.buffer, rec.half, rec.twiddles, rec.places
        self.ends(self.slot(0), self.slot(half))
        pairs = half // 2
        cursors = {0: Cursor(twiddles, 2 * form.bits // 8)}
        with f.unless_zero(pairs), f.cursor_loop(pairs, cursors) as (number, at):
            k = number + 1
            near, far = self.slot(k), self.slot(half - k)
            make = _inverse_pair if self.form.inverse else _pair
            x, y = make(load_slot(near, form), load_slot(far, form), in_all_lanes(at[0], form))
            store_slot(x, near)
            store_slot(y, far)
        return f.end()

    def ends(self, first: Pointer, last: Pointer) -> None:
        """X[0] and X[h], which are real: sum and difference of the parts of Z[0]."""
        form = self.form.form
        if self.form.inverse:
            real, other = load_slot(first, form).re, load_slot(last, form).re
            total = real + other
            store_slot(Complex(real - other, total), first)
            return
        ends = load_slot(first, form)
        zero = ends.re.constant(0.0)
        store_slot(Complex(ends.re + ends.im, zero), first)
        store_slot(Complex(ends.re - ends.im, zero), last)

    def slot(self, number: IntLike) -> Pointer:
        return self.buffer.at(self.places.element("i64", number).word())


def _pair(x: Complex, y: Complex, twiddle: Complex) -> tuple[Complex, Complex]:
    y = _conjugate(y)
    even = (x + y).times(0.5)
    odd = times_minus_i(x - y).times(0.5)
    turned = product(odd, twiddle)
    return even + turned, _conjugate(even - turned)


def _inverse_pair(x: Complex, y: Complex, twiddle: Complex) -> tuple[Complex, Complex]:
    """(even + i odd) and (conj even + i conj odd), the parts of which are swapped."""
    y = _conjugate(y)
    even = x + y
    odd = product(x - y, _conjugate(twiddle))
    turned = times_minus_i(odd)
    near = even - turned
    far = _conjugate(even + turned)
    return Complex(near.im, near.re), Complex(far.im, far.re)


def _conjugate(x: Complex) -> Complex:
    return Complex(x.re, -x.im)
