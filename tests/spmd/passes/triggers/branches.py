"""Conditionals between random branches, for the triggers of passes about conditionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.builder import Builder
from spmd.hlo import HloInstruction
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program

#: A function that writes what branch ``number`` returns, given the elements of its operand.
Branch = Callable[[Builder, list[HloInstruction], int], HloInstruction]


def conditional(
    p: Program, operands: Sequence[Sequence[HloInstruction]], branch: Branch
) -> HloInstruction:
    """Return a conditional with a branch for each of the operands, which are made tuples.

    A pred chooses between two branches.
    """
    tuples = [p.b.tuple(elements) for elements in operands]
    computations = []
    for number, operand in enumerate(tuples):
        b, (parameter,) = p.computation(f"branch_{number}", operand.shape)
        elements = [b.get_tuple_element(parameter, i) for i in range(operand.num_operands)]
        computations.append(p.returns(branch(b, elements, number)))
    predicated = len(operands) == 2 and p.chance()
    selector = p.parameter(ArrayShape(PrimitiveType.PRED if predicated else PrimitiveType.S32, ()))
    return p.b.conditional(selector, computations, tuples)
