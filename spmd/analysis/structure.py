"""Structural keys of computations: equal keys mean equal programs, whatever the names."""

from __future__ import annotations

from collections.abc import Hashable

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.ops.checks import plain


class StructuralKeys:
    """Numbers computations so that two have one number when they are the same program.

    Names, layouts and metadata do not count. Each computation is read once; make a new object after editing.
    """

    def __init__(self) -> None:
        self._number_of: dict[HloComputation, int] = {}
        self._number_of_key: dict[Hashable, int] = {}

    def key(self, computation: HloComputation) -> int:
        known = self._number_of.get(computation)
        if known is None:
            form = self._form(computation)
            known = self._number_of_key.setdefault(form, len(self._number_of_key))
            self._number_of[computation] = known
        return known

    def _form(self, computation: HloComputation) -> Hashable:
        position: dict[HloInstruction, int] = {}
        parts: list[Hashable] = []
        for i, x in enumerate(canonical_order(computation)):
            position[x] = i
            parts.append(
                (
                    x.opcode,
                    plain(x.shape),
                    x.attrs,
                    tuple(position[operand] for operand in x.operands),
                    tuple(position[before] for before in x.control_predecessors),
                    tuple(self.key(callee) for callee in x.called_computations),
                )
            )
        return (position[computation.root], tuple(parts))


def canonical_order(computation: HloComputation) -> list[HloInstruction]:
    """Operands first, as the root needs them; then parameters and whatever else stands there.

    Unlike the stored order, it depends on the program alone as far as the root reaches.
    """
    order: list[HloInstruction] = []
    done: dict[HloInstruction, bool] = {}
    for start in (computation.root, *computation.parameters, *computation.post_order()):
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
    return order
