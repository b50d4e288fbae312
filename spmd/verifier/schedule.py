"""Rules of a scheduled module: the stored order of each computation is one in which it can run."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.hlo.module import HloModule, Stage
from spmd.ops.inference import describe
from spmd.verifier.rule import Rule


def order_is_topological(module: HloModule) -> Iterator[str]:
    if module.stage < Stage.SCHEDULED:
        return
    for computation in module.computations:
        done: set[int] = set()
        for x in computation.instructions:
            for before in (*x.operands, *x.control_predecessors):
                if id(before) not in done:
                    yield f"it runs before {before.name}, which it needs: {describe(x)}"
            done.add(id(x))


SCHEDULE_RULES = (
    Rule(
        "schedule",
        "an instruction stands after its operands and control predecessors",
        order_is_topological,
    ),
)
