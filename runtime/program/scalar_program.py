"""Scalar programs, such as reducers are: operations on registers as plain data, and as an LLVM function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from spmd.device import ReductionKind
from spmd.hlo import NO_ATTRS, Attrs, Opcode
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
