"""Cost of the recomputation of an instruction, and the instructions that are never recomputed."""

from __future__ import annotations

import math

from spmd.analysis.cost import op_cost
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.wire import result_bytes
from spmd.cost.elements import OPERATIONS_PER_BYTE, OPERATIONS_PER_FUNCTION
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass
from spmd.ops import OpCost, definition
from spmd.shape import ArrayShape

#: Bytes of memory traffic that take as long as one byte from another device.
BYTES_PER_BYTE_SENT = 16.0

#: Opcodes that are never recomputed: inputs, generated arrays, loops and calls, whose work is not bounded here, and
#: library calls.
_NEVER = frozenset(
    {
        Opcode.CALL,
        Opcode.CONDITIONAL,
        Opcode.CONSTANT,
        Opcode.CUSTOM_CALL,
        Opcode.FUSION,
        Opcode.IOTA,
        Opcode.PARAMETER,
        Opcode.SCAN,
        Opcode.WHILE,
    }
)


@dataclass(frozen=True, slots=True)
class RecomputeCost:
    """Work of one execution: floating-point operations, and bytes of memory traffic."""

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: RecomputeCost) -> RecomputeCost:
        return RecomputeCost(self.flops + other.flops, self.bytes + other.bytes)

    @property
    def weight(self) -> float:
        """Return the work as one number, in flops, with bytes converted to flops."""
        return self.flops + OPERATIONS_PER_BYTE * self.bytes

    @staticmethod
    def of(work: OpCost) -> RecomputeCost:
        """Return the cost of ``work``. A transcendental function counts as several flops."""
        flops = work.flops + OPERATIONS_PER_FUNCTION * work.transcendentals
        return RecomputeCost(flops, work.bytes_accessed)


def recompute_cost(
    instruction: HloInstruction, *, collectives: bool = False
) -> RecomputeCost | None:
    """Return the cost of recomputing ``instruction``, or None if it must not be recomputed.

    Instructions with side effects or control edges, generators of random numbers, loops and library calls must not be
    recomputed. collectives: whether collectives may be; all devices then repeat a collective at the same position,
    since they run the same program.
    """
    if instruction.opcode in _NEVER or not isinstance(instruction.shape, ArrayShape):
        return None
    if instruction.control_predecessors or instruction.control_successors:
        return None
    if SideEffects().of(instruction):
        return None
    if instruction.opcode in KIND:
        if not collectives:
            return None
        return RecomputeCost(0.0, BYTES_PER_BYTE_SENT * result_bytes(instruction))
    work = RecomputeCost.of(op_cost(instruction))
    if instruction.called_computations:
        # A reducer runs about once for each input element.
        elements = sum(
            math.prod(operand.dims)
            for operand in instruction.operands
            if isinstance(operand.shape, ArrayShape)
        )
        work += RecomputeCost(float(elements))
    return work


def is_cheap(instruction: HloInstruction) -> bool:
    """Return whether ``instruction`` is elementwise arithmetic without transcendental functions.

    Fusion repeats such arithmetic as well.
    """
    op = definition(instruction.opcode)
    if not op.elementwise or instruction.called_computations:
        return False
    cost = op.cost(instruction)
    return not cost.transcendentals and bool(cost.flops)
