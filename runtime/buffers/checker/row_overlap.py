"""Buffer checker rule: results of a fusion that reduces rows may overlap operands.

Such a kernel processes one row after another, and each row in as many passes as reductions depend on one another. A
result may overlap an operand if an element of the operand is needed only for the result's element at the same index and
for the reductions of its own row. If the result needs all reductions, it is written in the last pass, which reads each
element of the operand only for the result's element at its index.
"""

from __future__ import annotations

import math

from runtime.buffers.checker.element_order import is_read, stays_in_place
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.shape import ArrayShape


def overlaps_by_rows(fusion: HloInstruction) -> frozenset[tuple[int, int]]:
    """Return the pairs (result, operand) of a fusion that may overlap if their elements coincide."""
    fused = fusion.to_apply
    roots = fused.root.elements
    needed = _above(fused, fused.root)
    reduces = [x for x in needed if x.opcode is Opcode.REDUCE]
    if len({(x.operand(0).dims, _axes(x)) for x in reduces}) != 1:
        return frozenset()
    rows = _Rows(fused, reduces[0])
    operands = [n for n, x in enumerate(fused.parameters) if rows.stays(x)]
    results = [
        n
        for n, root in enumerate(roots)
        if rows.is_full_size(root) and not set(reduces) - set(_above(fused, root))
    ]
    return frozenset((i, k) for i in results for k in operands)


def _above(fused: HloComputation, root: HloInstruction) -> list[HloInstruction]:
    """Return the instructions on which ``root`` depends, and ``root`` itself, in the order of ``fused``."""
    needed = {root}
    for x in reversed(fused.instructions):
        if any(user in needed and is_read(x, user) for user in x.users):
            needed.add(x)
    return [x for x in fused.instructions if x in needed]


def _axes(reduce: HloInstruction) -> tuple[int, ...]:
    """Return the reduced dimensions, ascending."""
    return tuple(sorted(reduce.attrs_as(DimensionsAttrs).dimensions))


class _Rows:
    """Rows of a fusion: index space and unreduced dimensions of its reductions.

    ``moved``: instructions of which an element is needed at another index, or in another row.
    """

    def __init__(self, fused: HloComputation, reduce: HloInstruction) -> None:
        """Analyze ``fused``, all of whose reductions have the operand sizes and the dimensions of ``reduce``."""
        self.dims = reduce.operand(0).dims
        axes = _axes(reduce)
        self.unreduced = tuple(d for d in range(len(self.dims)) if d not in axes)
        self.needed = set(_above(fused, fused.root))
        self.moved: set[HloInstruction] = set()
        for x in reversed(fused.instructions):
            if any(self.moves(x, user) for user in x.users if user in self.needed):
                self.moved.add(x)

    def is_full_size(self, x: HloInstruction) -> bool:
        """Return whether ``x`` has as many elements as the index space."""
        return isinstance(x.shape, ArrayShape) and x.shape.num_elements == math.prod(self.dims)

    def stays(self, x: HloInstruction) -> bool:
        """Return whether elements of ``x`` are needed only at their own index and in reductions of their row."""
        return self.is_full_size(x) and x not in self.moved

    def moves(self, x: HloInstruction, user: HloInstruction) -> bool:
        """Return whether ``user`` needs an element of ``x``, or of its row, at another index."""
        if user.opcode is Opcode.TUPLE or not is_read(x, user):
            return False
        if user in self.moved or not isinstance(x.shape, ArrayShape):
            return True
        if user.opcode is Opcode.REDUCE:
            return x is not user.operand(0) or x in user.operands[1:] or x.dims != self.dims
        if stays_in_place(x, user):
            return False
        if user.opcode is Opcode.BROADCAST:
            spread = user.attrs_as(DimensionsAttrs).dimensions
            return _runs(user.dims, spread) != _runs(self.dims, self.unreduced)
        if user.opcode is Opcode.PAD and x is user.operand(1):
            return _runs(user.dims, ()) != _runs(self.dims, self.unreduced)
        if user.opcode is Opcode.TRANSPOSE and x.opcode is Opcode.BROADCAST:
            order = user.attrs_as(DimensionsAttrs).dimensions
            spread = tuple(map(order.index, x.attrs_as(DimensionsAttrs).dimensions))
            return _runs(user.dims, spread) != _runs(self.dims, self.unreduced)
        return True


def _runs(dims: tuple[int, ...], unreduced: tuple[int, ...]) -> list[tuple[int, bool]]:
    """Return the layout of rows in an array: sizes of alternating runs of unreduced and reduced dimensions.

    For example, f32[6,1,2] with reduced dimensions 0 and 2 is one row of 12 elements, as is f32[1,12] with reduced
    dimension 1. Returns an empty list if ``unreduced`` is not ascending.
    """
    if tuple(sorted(unreduced)) != unreduced:
        return []
    runs: list[tuple[int, bool]] = []
    for d, size in enumerate(dims):
        if size == 1:
            continue
        if runs and runs[-1][1] == (d in unreduced):
            size *= runs.pop()[0]
        runs.append((size, d in unreduced))
    return runs
