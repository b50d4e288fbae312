"""How many instructions call each computation."""

from __future__ import annotations

from collections import Counter

from spmd.hlo.computation import HloComputation
from spmd.hlo.module import HloModule


def call_sites(module: HloModule) -> Counter[HloComputation]:
    """Of what the entry reaches; an instruction that names a computation twice counts twice."""
    return Counter(
        callee
        for computation in module.computations_post_order()
        for x in computation.instructions
        for callee in x.called_computations
    )
