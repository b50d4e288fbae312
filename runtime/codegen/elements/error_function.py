"""Error function: x plus an odd polynomial near 0, and 1 - erfc elsewhere, where -log(erfc) is a polynomial.

-log(erfc(t)) is nearly quadratic. Its absolute error becomes an error of erf after multiplication by erfc(t) < 0.16.
"""

from __future__ import annotations

from runtime.codegen.elements import constants
from runtime.codegen.elements.builder import Float
from runtime.codegen.elements.common import polynomial
from runtime.codegen.elements.exponential import exp_normal
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.registry import FLOAT_FUNCTIONS
from spmd.hlo import Opcode

_SMALL = {F32: constants.ERF_F32, F64: constants.ERF_F64}
_TAIL = {F32: constants.ERFC_F32, F64: constants.ERFC_F64}
#: Argument from which on erf rounds to 1. The polynomial of the tail is valid up to here.
_LAST = {F32: 4.0, F64: 6.0}


@FLOAT_FUNCTIONS.register((Opcode.ERF, F32), (Opcode.ERF, F64))
def erf(x: Float) -> Float:
    fmt, t = x.format, x.abs()
    small = polynomial(_SMALL[fmt], x * x).times_plus(x, x)
    last = _LAST[fmt]
    v = (t > last).choose(t.constant(last), t) - 1.0
    large = 1.0 - exp_normal(-polynomial(_TAIL[fmt], v))
    return (t < 1.0).choose(small, large.with_sign_of(x))
