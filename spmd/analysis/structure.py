"""Structural keys of computations and instructions, independent of names: equal keys mean equal programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.ops.checks import plain


class StructuralKeys:
    """Numbering of computations: two have one number if they are the same program.

    Names, layouts and metadata do not count. Each computation is read once; make a new object after editing.
    """

    def __init__(self) -> None:
        self._number_of: dict[HloComputation, int] = {}
        self._number_of_key: dict[Hashable, int] = {}

    def key(self, computation: HloComputation) -> int:
        known = self._number_of.get(computation)
        if known is None:
            parts = computation_key(computation, self.key)
            known = self._number_of_key.setdefault(parts, len(self._number_of_key))
            self._number_of[computation] = known
        return known


def computation_key(
    computation: HloComputation, callee: Callable[[HloComputation], Hashable]
) -> Hashable:
    """Return the structural key of a computation: its instructions in order. callee: the key of a called
    computation."""
    position: dict[HloInstruction, int] = {}
    parts: list[Hashable] = []
    for i, x in enumerate(canonical_order(computation)):
        position[x] = i
        operands = tuple([position[operand] for operand in x.operands])
        before = tuple([position[one] for one in x.control_predecessors])
        parts.append((instruction_key(x, callee), operands, before))
    return (position[computation.root], tuple(parts))


def instruction_key(
    x: HloInstruction, callee: Callable[[HloComputation], Hashable]
) -> tuple[Hashable, ...]:
    """Return the structural key of an instruction, independent of its operands."""
    callees = tuple([callee(one) for one in x.called_computations])
    return (x.opcode, plain(x.shape), x.attrs, callees)


def canonical_order(computation: HloComputation) -> list[HloInstruction]:
    """Return the instructions in post-order from the root, then parameters and all others.

    Unlike the stored order, it depends on the program alone as far as the root reaches.
    """
    order: list[HloInstruction] = []
    done: dict[HloInstruction, bool] = {}
    for start in (computation.root, *computation.parameters):
        _add_post_order(start, order, done)
    if len(order) < len(computation):
        for start in computation.post_order():
            _add_post_order(start, order, done)
    return order


def _add_post_order(
    start: HloInstruction, order: list[HloInstruction], done: dict[HloInstruction, bool]
) -> None:
    """Add to ``order`` what ``start`` needs, and ``start``, as far as they are not there. done: whether an instruction
    that was entered is there.
    """
    stack = [start]
    while stack:
        x = stack.pop()
        if x in done:
            if not done[x]:
                done[x] = True
                order.append(x)
            continue
        done[x] = False
        stack.append(x)
        stack.extend(
            before
            for before in reversed((*x.operands, *x.control_predecessors))
            if before not in done
        )
