"""How often computations run in a step."""

from __future__ import annotations

import explain_modules

import spmd
from spmd.analysis.executions import executions


def test_nested_computations() -> None:
    module = spmd.parse(explain_modules.LOOPED)
    times = {computation.name: count for computation, count in executions(module).items()}
    assert (times["main"], times["body"]) == (1, 5)
