"""Operations between two reductions over devices: for the triggers of passes that swap them."""

from __future__ import annotations

from spmd.device import ReductionKind
from spmd.hlo import HloInstruction, Opcode
from tests.spmd.passes.triggers.programs import Program

#: Operations on two results of a reduction that may as well be done on its operands.
OPERATIONS = {
    ReductionKind.SUM: (Opcode.ADD, Opcode.SUBTRACT),
    ReductionKind.PRODUCT: (Opcode.MULTIPLY,),
    ReductionKind.MIN: (Opcode.MINIMUM,),
    ReductionKind.MAX: (Opcode.MAXIMUM,),
    ReductionKind.AND: (Opcode.AND,),
    ReductionKind.OR: (Opcode.OR,),
    ReductionKind.XOR: (Opcode.XOR,),
}


def in_a_row(p: Program, reduced: list[HloInstruction], kind: ReductionKind) -> HloInstruction:
    """All of ``reduced``, two by two, in any order."""
    left = p.shuffled(reduced)
    while len(left) > 1:
        left.append(p.b.binary(p.choose(OPERATIONS[kind]), left.pop(0), left.pop(0)))
    return left[0]
