"""OpDef: what an opcode is — how its shape follows, what it demands, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.registry import Registry
from spmd.shape import Shape


@dataclass(frozen=True, slots=True)
class OpCost:
    """Work of one execution of one instruction, called computations not included.

    flops: arithmetic operations on elements (a multiply-add counts 2, as in XLA's HloCostAnalysis);
    transcendentals: calls of exp, log, tanh, ...; bytes_accessed: bytes of operands read plus results written.
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_accessed: float = 0.0

    def __add__(self, other: OpCost) -> OpCost:
        return OpCost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes_accessed + other.bytes_accessed,
        )

    def scaled(self, times: float) -> OpCost:
        return OpCost(self.flops * times, self.transcendentals * times, self.bytes_accessed * times)


#: The result shape (layout unset) that operands, attributes and callees imply; None where the written shape is free
#: (parameter, constant, iota, custom-call, ...) and only ``verify`` can judge it. Raises ShapeError with the reason.
InferShape: TypeAlias = Callable[[HloInstruction], Shape | None]
#: Raises ShapeError or VerificationError for what inference does not cover.
Verify: TypeAlias = Callable[[HloInstruction], None]
#: Flops and transcendentals; bytes are filled in by spmd.analysis.cost unless set here.
Cost: TypeAlias = Callable[[HloInstruction], OpCost]


def no_checks(_: HloInstruction) -> None:
    """Nothing beyond shape inference."""


def no_cost(_: HloInstruction) -> OpCost:
    return OpCost()


@dataclass(frozen=True, slots=True)
class OpDef:
    """One opcode's definition. ``arity``: number of operands, or None when it varies."""

    opcode: Opcode
    infer: InferShape
    arity: int | None = None
    verify: Verify = no_checks
    cost: Cost = no_cost


OPS: Registry[Opcode, OpDef] = Registry("op definition")


def define(op: OpDef) -> OpDef:
    OPS.add(op.opcode, op)
    return op
