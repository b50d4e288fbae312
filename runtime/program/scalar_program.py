"""Scalar programs, such as reducers are: operations on registers as plain data, and as an LLVM function."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from spmd.device import ReductionKind
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class ElementSignature:
    """An elementwise opcode with its operands' types and the result's."""

    opcode: Opcode
    operands: tuple[PrimitiveType, ...]
    result: PrimitiveType
    attrs: Attrs = NO_ATTRS


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """An element operation on registers."""

    signature: ElementSignature
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScalarConstant:
    """``bits`` are those of an element in memory, as an unsigned number."""

    kind: PrimitiveType
    bits: int


ScalarStep: TypeAlias = ScalarOp | ScalarConstant


@dataclass(frozen=True, slots=True)
class ScalarProgram:
    """Program of scalar operations. Register i < len(parameters) is parameter i; each step writes the next register.

    results: numbers of registers.
    """

    parameters: tuple[PrimitiveType, ...]
    steps: tuple[ScalarStep, ...]
    results: tuple[int, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.parameters, self.steps, self.results)))

    def __hash__(self) -> int:
        """Return the hash, which is computed once because programs are keys of the code cache."""
        return self._hash

    def kind_of(self, register: int) -> PrimitiveType:
        if register < len(self.parameters):
            return self.parameters[register]
        step = self.steps[register - len(self.parameters)]
        return step.kind if isinstance(step, ScalarConstant) else step.signature.result


Reducer: TypeAlias = ReductionKind | ScalarProgram


# ---- provenance of results before they are rounded to bf16, which may simplify the rounding


class Provenance(Enum):
    """Provenance of an f32 that is rounded to bf16; it decides which steps of the rounding are needed.

    Rounding is an addition, whose carry would turn a nan with ones in the lower half into infinity or -0.
    """

    ANYWHERE = "any number, nan of every payload"
    COMPUTED = "of bf16 by f32 operations: a nan is the processor's own or an operand's, their lower halves zero"
    CHOSEN = "a number of bf16"


#: Opcodes whose result is an operand, its negative, an equally short integer, or an operand with fewer digits.
_CHOOSING = frozenset(
    {
        Opcode.ABS,
        Opcode.CEIL,
        Opcode.CLAMP,
        Opcode.FLOOR,
        Opcode.MAXIMUM,
        Opcode.MINIMUM,
        Opcode.NEGATE,
        Opcode.REDUCE_PRECISION,
        Opcode.ROUND_NEAREST_AFZ,
        Opcode.ROUND_NEAREST_EVEN,
        Opcode.SELECT,
        Opcode.SIGN,
    }
)


_ARITHMETIC = frozenset({Opcode.ADD, Opcode.DIVIDE, Opcode.MULTIPLY, Opcode.SUBTRACT})


def provenance_of(signature: ElementSignature) -> Provenance:
    """Return the provenance of a bf16 result; tests try each unary operation on all of bf16. ANYWHERE if unknown."""
    if signature.result is not PrimitiveType.BF16:
        return Provenance.ANYWHERE
    if signature.opcode is Opcode.CONVERT:
        return _of_conversion(*signature.operands)
    if any(kind.is_floating and kind is not PrimitiveType.BF16 for kind in signature.operands):
        return Provenance.ANYWHERE
    if signature.opcode in _CHOOSING:
        return Provenance.CHOSEN
    if signature.opcode in _ARITHMETIC or len(signature.operands) == 1:
        return Provenance.COMPUTED
    return Provenance.ANYWHERE


def _of_conversion(source: PrimitiveType) -> Provenance:
    """Return the provenance of a conversion. 8-bit types have no more digits than bf16; integers give no nan."""
    if source is PrimitiveType.BF16 or source.bits <= 8:
        return Provenance.CHOSEN
    return Provenance.COMPUTED if source.is_integer else Provenance.ANYWHERE
