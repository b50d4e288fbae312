"""Straight-line LLVM IR written as arithmetic: ``y = x * x + 1.0`` appends instructions to the code of ``x``.

There are no branches, no calls except those of LLVM's intrinsics, and no operations whose result may be poison, such as
conversions of numbers that no integer holds, or excessive shifts. A vectorizer can therefore handle all of it, and
unused results may be computed and dropped by a select.
"""

from __future__ import annotations

from typing import TypeAlias

from runtime.codegen.elements.formats import FloatFormat
from runtime.codegen.elements.instructions import PLAIN, Instructions
from spmd.lazy_dataclass import dataclass

#: Arithmetic accepts numbers as constants.
Real: TypeAlias = "Float | float"
IntLike: TypeAlias = "Int | int"


@dataclass(frozen=True, slots=True)
class Lines:
    """Body of a function, and the globals of the module that it needs."""

    body: str
    globals: tuple[str, ...] = ()


class Code:
    """Sequence of lines, and the constants and functions of the module that they need."""

    #: Suffix of loads and stores, which may mark them as independent.
    access = ""

    def __init__(self, instructions: Instructions = PLAIN) -> None:
        self.instructions = instructions
        self.globals: list[str] = []
        self._lines: list[str] = []

    def append(self, expression: str) -> str:
        """Append an instruction that computes ``expression``, and return its register."""
        name = f"%t{len(self._lines)}"
        self._lines.append(f"{name} = {expression}")
        return name

    def add(self, line: str) -> None:
        """Append a line that has no value."""
        self._lines.append(line)

    def text(self, result: Float | Int | Bool, name: str = "%r") -> str:
        """Return all lines, the last of which defines ``name`` as ``result``. A condition becomes a byte, 0 or 1."""
        if isinstance(result, Bool):
            last = f"{name} = zext i1 {result.name} to i8"
        else:
            last = f"{name} = bitcast {result.type} {result.name} to {result.type}"
        return "\n  ".join([*self._lines, last])

    def lines(self, result: Float | Int | Bool, name: str = "%r") -> Lines:
        """Return the lines, as ``text`` does, and the globals that they need."""
        return Lines(self.text(result, name), tuple(self.globals))


class Value:
    """Value of the LLVM type ``type``: the register ``name``, or a constant with that text."""

    __slots__ = ("code", "name", "type")

    def __init__(self, code: Code, type_: str, name: str) -> None:
        self.code = code
        self.type = type_
        self.name = name

    def __str__(self) -> str:
        return self.name


class Float(Value):
    """Floating-point number of ``format``."""

    __slots__ = ("format",)

    def __init__(self, code: Code, format_: FloatFormat, name: str) -> None:
        self.code = code
        self.format = format_
        self.type = format_.name
        self.name = name

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

    def compared(self, condition: str, other: Real) -> Bool:
        other = self._float(other)
        line = f"fcmp {condition} {self.type} {self.name}, {other.name}"
        return Bool(self.code, self.code.append(line))

    def __lt__(self, other: Real) -> Bool:
        return self.compared("olt", other)

    def __le__(self, other: Real) -> Bool:
        return self.compared("ole", other)

    def __gt__(self, other: Real) -> Bool:
        return self.compared("ogt", other)

    def __ge__(self, other: Real) -> Bool:
        return self.compared("oge", other)

    def equals(self, other: Real) -> Bool:
        return self.compared("oeq", other)

    def is_nan(self) -> Bool:
        return self.compared("uno", self)

    def times_plus(self, factor: Real, term: Real) -> Float:
        """Compute self * factor + term with one rounding or two, whichever the processor does faster."""
        return self.intrinsic("fmuladd", self._float(factor), self._float(term))

    def fused_times_plus(self, factor: Float, term: Float) -> Float:
        """Compute self * factor + term with one rounding."""
        return self.intrinsic("fma", factor, term)

    def intrinsic(self, name: str, *others: Float) -> Float:
        """Call LLVM's intrinsic ``name`` of this number and ``others``."""
        arguments = ", ".join(f"{x.type} {x.name}" for x in (self, *others))
        return self._made(f"call {self.type} @llvm.{name}.{self.format.suffix}({arguments})")

    def abs(self) -> Float:
        return self.intrinsic("fabs")

    def sqrt(self) -> Float:
        return self.intrinsic("sqrt")

    def rounded(self) -> Float:
        """Round to the nearest integer, ties to even."""
        return self.intrinsic("rint")

    def truncated(self) -> Float:
        """Round to an integer towards zero."""
        return self.intrinsic("trunc")

    def scaled(self, exponent: Int) -> Float:
        """Compute self * 2^exponent with one rounding. The processor must have ``scales``."""
        exponent = exponent.resized("i32")
        name = f"@llvm.ldexp.{self.format.suffix}.i32"
        return self._made(f"call {self.type} {name}({self.type} {self.name}, i32 {exponent.name})")

    def with_sign_of(self, other: Float) -> Float:
        return self.intrinsic("copysign", other)

    def bits(self) -> Int:
        kind = self.format.integer
        return Int(self.code, kind, self.code.append(f"bitcast {self.type} {self.name} to {kind}"))

    def to(self, target: FloatFormat) -> Float:
        if target is self.format:
            return self
        word = "fpext" if target.bits > self.format.bits else "fptrunc"
        line = f"{word} {self.type} {self.name} to {target.name}"
        return Float(self.code, target, self.code.append(line))


class Int(Value):
    """Integer of the LLVM type ``type`` (i8 to i128). Arithmetic wraps."""

    __slots__ = ()

    @property
    def width(self) -> int:
        return int(self.type[1:])

    def _made(self, expression: str) -> Int:
        return Int(self.code, self.type, self.code.append(expression))

    def constant(self, value: int) -> Int:
        return Int(self.code, self.type, str(value))

    def _int(self, other: IntLike) -> Int:
        return other if isinstance(other, Int) else self.constant(other)

    def _binary(self, instruction: str, other: IntLike) -> Int:
        code, t = self.code, self.type
        right = other.name if isinstance(other, Int) else other
        return Int(code, t, code.append(f"{instruction} {t} {self.name}, {right}"))

    def __add__(self, other: IntLike) -> Int:
        return self._binary("add", other)

    def __radd__(self, other: int) -> Int:
        return self + other

    def __rmul__(self, other: int) -> Int:
        return self * other

    def __sub__(self, other: IntLike) -> Int:
        return self._binary("sub", other)

    def __rsub__(self, other: int) -> Int:
        return self.constant(other) - self

    def __mul__(self, other: IntLike) -> Int:
        return self._binary("mul", other)

    def __and__(self, other: IntLike) -> Int:
        return self._binary("and", other)

    def __or__(self, other: IntLike) -> Int:
        return self._binary("or", other)

    def __xor__(self, other: IntLike) -> Int:
        return self._binary("xor", other)

    def __lshift__(self, distance: IntLike) -> Int:
        return self._binary("shl", distance)

    def __rshift__(self, distance: IntLike) -> Int:
        """Shift right with zeros."""
        return self._binary("lshr", distance)

    def __floordiv__(self, other: IntLike) -> Int:
        """Divide unsigned numbers."""
        return self._binary("udiv", other)

    def __mod__(self, other: IntLike) -> Int:
        """Return the remainder of unsigned numbers."""
        return self._binary("urem", other)

    def signed_quotient(self, other: Int) -> Int:
        return self._binary("sdiv", other)

    def signed_rest(self, other: Int) -> Int:
        return self._binary("srem", other)

    def __neg__(self) -> Int:
        return self.constant(0) - self

    def signed_shift(self, distance: IntLike) -> Int:
        """Shift right with copies of the sign."""
        return self._binary("ashr", distance)

    def compared(self, condition: str, other: IntLike) -> Bool:
        """Compare by LLVM's ``condition``: eq, ne, slt, ugt and so on."""
        right = other.name if isinstance(other, Int) else other
        line = f"icmp {condition} {self.type} {self.name}, {right}"
        return Bool(self.code, self.code.append(line))

    def equals(self, other: IntLike) -> Bool:
        return self.compared("eq", other)

    def differs(self, other: IntLike) -> Bool:
        return self.compared("ne", other)

    def __lt__(self, other: IntLike) -> Bool:
        """Compare as signed numbers, like the other operators. ``ult`` compares unsigned numbers."""
        return self.compared("slt", other)

    def __le__(self, other: IntLike) -> Bool:
        return self.compared("sle", other)

    def __gt__(self, other: IntLike) -> Bool:
        return self.compared("sgt", other)

    def __ge__(self, other: IntLike) -> Bool:
        return self.compared("sge", other)

    def ult(self, other: IntLike) -> Bool:
        return self.compared("ult", other)

    def _extreme(self, name: str, other: IntLike) -> Int:
        right = other.name if isinstance(other, Int) else other
        t = self.type
        return self._made(f"call {t} @llvm.{name}.{t}({t} {self.name}, {t} {right})")

    def smin(self, other: IntLike) -> Int:
        """Return the smaller number, both signed, by LLVM's intrinsic."""
        return self._extreme("smin", other)

    def smax(self, other: IntLike) -> Int:
        """Return the larger number, both signed, by LLVM's intrinsic."""
        return self._extreme("smax", other)

    def umin(self, other: IntLike) -> Int:
        """Return the smaller number, both unsigned, by LLVM's intrinsic."""
        return self._extreme("umin", other)

    def umax(self, other: IntLike) -> Int:
        """Return the larger number, both unsigned, by LLVM's intrinsic."""
        return self._extreme("umax", other)

    def one_bits(self) -> Int:
        return self._made(f"call {self.type} @llvm.ctpop.{self.type}({self.type} {self.name})")

    def leading_zeros(self) -> Int:
        call = f"@llvm.ctlz.{self.type}({self.type} {self.name}, i1 false)"
        return self._made(f"call {self.type} {call}")

    def as_float(self, target: FloatFormat) -> Float:
        """Return the number of format ``target`` with the same bits."""
        line = f"bitcast {self.type} {self.name} to {target.name}"
        return Float(self.code, target, self.code.append(line))

    def resized(self, kind: str, *, signed: bool = False) -> Int:
        """Return the integer as type ``kind``: truncated, or extended with zeros or, if ``signed``, the sign."""
        if kind == self.type:
            return self
        extended = "sext" if signed else "zext"
        word = "trunc" if int(kind[1:]) < self.width else extended
        return Int(self.code, kind, self.code.append(f"{word} {self.type} {self.name} to {kind}"))


class Bool(Value):
    """Condition, an i1."""

    __slots__ = ()

    def __init__(self, code: Code, name: str) -> None:
        self.code = code
        self.type = "i1"
        self.name = name

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

    def resized(self, kind: str) -> Int:
        """Return 1 or 0 as an integer of type ``kind``."""
        return Int(self.code, kind, self.code.append(f"zext i1 {self.name} to {kind}"))

    def choose(self, on_true: Float, on_false: Real) -> Float:
        """Return ``on_true`` if the condition holds, else ``on_false``: numbers of one format."""
        other = on_true._float(on_false)
        return on_true._made(self._select(on_true, other))

    def select(self, on_true: Int, on_false: IntLike) -> Int:
        """Return ``on_true`` if the condition holds, else ``on_false``: integers of one type."""
        other = on_true._int(on_false)
        return on_true._made(self._select(on_true, other))

    def _select(self, on_true: Float | Int, on_false: Float | Int) -> str:
        t = on_true.type
        return f"select i1 {self.name}, {t} {on_true.name}, {t} {on_false.name}"
