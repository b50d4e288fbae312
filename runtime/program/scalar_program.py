"""Scalar programs, for example reducers and fused elementwise operations: operations on registers as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from spmd.device import ReductionKind
from spmd.hlo import NO_ATTRS, Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class ElementSignature:
    """An elementwise opcode with the types of its operands and of its result."""

    opcode: Opcode
    operands: tuple[PrimitiveType, ...]
    result: PrimitiveType
    attrs: Attrs = NO_ATTRS


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """An elementwise operation on registers. ``operands`` are numbers of registers."""

    signature: ElementSignature
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScalarConstant:
    """A constant of type ``kind``. ``bits`` is its little-endian representation in memory, as an unsigned number."""

    kind: PrimitiveType
    bits: int


ScalarStep: TypeAlias = ScalarOp | ScalarConstant


@dataclass(frozen=True, slots=True)
class ScalarProgram:
    """Program of scalar operations in static single assignment form.

    Registers 0 .. len(parameters) - 1 are the parameters; each step writes the next register. ``parameters`` are types,
    ``results`` are numbers of registers.
    """

    parameters: tuple[PrimitiveType, ...]
    steps: tuple[ScalarStep, ...]
    results: tuple[int, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.parameters, self.steps, self.results)))

    def __hash__(self) -> int:
        """Return the hash. It is computed once, since programs are keys of the code cache."""
        return self._hash

    def kind_of(self, register: int) -> PrimitiveType:
        """Return the element type of ``register``."""
        if register < len(self.parameters):
            return self.parameters[register]
        step = self.steps[register - len(self.parameters)]
        return step.kind if isinstance(step, ScalarConstant) else step.signature.result

    def with_parameters(self, order: Sequence[int]) -> ScalarProgram:
        """Return the same program with its parameters in ``order``: parameter i is what ``order[i]`` was."""
        count = len(self.parameters)
        old = (*order, *range(count, count + len(self.steps)))
        renumbered = {register: new for new, register in enumerate(old)}
        steps = (
            ScalarOp(step.signature, tuple([renumbered[r] for r in step.operands]))
            if isinstance(step, ScalarOp)
            else step
            for step in self.steps
        )
        return ScalarProgram(
            tuple(self.parameters[n] for n in order),
            tuple(steps),
            tuple([renumbered[r] for r in self.results]),
        )


Reducer: TypeAlias = ReductionKind | ScalarProgram


# ---- provenance of values that are rounded to bf16, which may simplify the rounding


class Provenance(Enum):
    """Set of values that an f32 may have before it is rounded to bf16. It decides which steps of rounding are needed.

    Rounding adds to the bits of the number; the carry would turn a nan whose lower half has ones into infinity or -0,
    so a value that may be such a nan needs a separate test. A number of bf16 needs no rounding.
    """

    ANYWHERE = "any number, nan of every payload"
    COMPUTED = "of bf16 by f32 operations: a nan is the processor's own or an operand's, their lower halves zero"
    CHOSEN = "a number of bf16"


#: Opcodes whose result on bf16 operands is a number of bf16: an operand, its negative, an operand rounded to an integer
#: or to fewer digits, or a sign.
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
    """Return the provenance of a bf16 result before it is rounded, or ANYWHERE if it is unknown or no bf16.

    Tests check each unary operation for all bf16 values.
    """
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
    """Return the provenance of a conversion from ``source`` to bf16.

    bf16 represents all values of 8-bit types; a converted integer is never nan.
    """
    if source is PrimitiveType.BF16 or source.bits <= 8:
        return Provenance.CHOSEN
    return Provenance.COMPUTED if source.is_integer else Provenance.ANYWHERE
