"""OpDef: the definition of an opcode: its shape inference, its checks, its costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeAlias

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry
from spmd.shape import Shape

P = ParamSpec("P")


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


#: The result shape (layout unset) implied by operands, attributes and callees; None if the written shape is free
#: (parameter, constant, iota, custom-call, ...) and only ``verify`` can check it. Raises ShapeError with the reason. If
#: HLO leaves the element type open (convert, dot's accumulation type), it is read from the instruction's shape.
InferShape: TypeAlias = Callable[[HloInstruction], Shape | None]
#: Check of properties that inference does not cover. Raises ShapeError or VerificationError.
Verify: TypeAlias = Callable[[HloInstruction], None]
#: Flops and transcendentals of the operation itself, without bytes and without called computations.
Cost: TypeAlias = Callable[[HloInstruction], OpCost]
#: Returns the bytes of a shape.
SizeOf: TypeAlias = Callable[[Shape], int]
#: Bytes read and written by one execution, if arrays have the given sizes.
Bytes: TypeAlias = Callable[[HloInstruction, SizeOf], float]
#: Number of applications of each called computation in one execution (of a reducer, one per combined element).
Applications: TypeAlias = Callable[[HloInstruction], tuple[float, ...]]
Predicate: TypeAlias = Callable[[HloInstruction], bool]


def byte_size(shape: Shape) -> int:
    """Return the bytes of ``shape`` as stored here: at least one for each element. It is the default SizeOf."""
    return shape.byte_size


def no_checks(_: HloInstruction) -> None:
    """Check nothing beyond shape inference."""


def no_cost(_: HloInstruction) -> OpCost:
    return OpCost()


def operands_and_result(instruction: HloInstruction, size_of: SizeOf) -> float:
    """Count every operand as read once, and the result as written once."""
    return size_of(instruction.shape) + sum(size_of(x.shape) for x in instruction.operands)


def no_bytes(_: HloInstruction, size_of: SizeOf) -> float:
    return 0.0


def each_once(instruction: HloInstruction) -> tuple[float, ...]:
    return (1.0,) * len(instruction.called_computations)


def not_counted(instruction: HloInstruction) -> tuple[float, ...]:
    """Return zero applications: the callees' work is part of the operation's own cost, or of its start's."""
    return (0.0,) * len(instruction.called_computations)


def never(_: HloInstruction) -> bool:
    return False


def always(_: HloInstruction) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class OpDef:
    """Definition of one opcode.

    arity: number of operands, or None if it varies. elementwise: each result element depends only on the operands'
    elements at the same position (except scalar operands of select and clamp), and all have the result's sizes.
    side_effect: dropping or merging executions would be visible (callees not considered, see analysis.side_effects).
    """

    opcode: Opcode
    infer: InferShape
    arity: int | None = None
    verify: Verify = no_checks
    cost: Cost = no_cost
    bytes_accessed: Bytes = operands_and_result
    applications: Applications = each_once
    elementwise: bool = False
    commutative: bool = False
    side_effect: Predicate = never


OPS: Registry[Opcode, OpDef] = Registry("op definition")


def _registering(make: Callable[P, OpDef]) -> Callable[P, None]:
    def define(*fields: P.args, **more: P.kwargs) -> None:
        op = make(*fields, **more)
        OPS.add(op.opcode, op)

    return define


#: Define an opcode by the fields of its OpDef.
define = _registering(OpDef)


def definition(opcode: Opcode) -> OpDef:
    """Return the definition of ``opcode``; every opcode has one after the import of ``spmd.ops``."""
    return OPS[opcode]
