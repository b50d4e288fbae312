"""Cost of a flat kernel, each element of which is computed from scalars and from elements at its own index."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from runtime.fusion.cost.cost_model import CostModel, KernelCost
from spmd.hlo import HloInstruction


def flat_cost(
    roots: Collection[HloInstruction],
    members: Iterable[HloInstruction],
    inputs: Collection[HloInstruction],
    cost_model: CostModel,
) -> KernelCost:
    """Return the cost of a flat kernel of ``roots``, which computes ``members`` from ``inputs``.

    Such a kernel is one innermost loop, which touches each array once and computes each scalar once. ``loop_cost``
    would give the same result, but needs index maps.
    """
    points = float(next(iter(roots)).array_shape.num_elements)
    compute = 0.0
    code = values = 0
    for x in members:
        values += 1
        each = cost_model.element(x)
        if each:
            compute += (points if x.dims else 1.0) * each
            code += 1
    written = [float(root.shape.byte_size) for root in roots]
    read = [float(x.shape.byte_size) for x in inputs if x.dims]
    memory = sum(map(cost_model.array, written)) + sum(map(cost_model.array, read))
    return KernelCost(
        cost_model.kernel(max(compute, memory), 1.0),
        cost_model.kernel(compute, 1.0),
        sum(read),
        sum(written),
        code,
        len(inputs),
        values + len(inputs),
    )
