"""Run passes in order, once or until the module stops changing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spmd.hlo.module import HloModule
from spmd.passes.interface import HloPass

#: Rounds after which a pipeline is taken to be stable; simplification settles in three or four.
MAX_ROUNDS = 8

#: Called after each pass with (pass, whether it changed the module): dumps, timing, verification.
AfterPass = Callable[[HloPass, bool], None]


def run_once(module: HloModule, passes: Iterable[HloPass], after: AfterPass | None = None) -> bool:
    """Each pass once; True when any changed the module."""
    changed = False
    for step in passes:
        step.check_stage(module)
        this_changed = step.run(module)
        changed |= this_changed
        if after is not None:
            after(step, this_changed)
    return changed


def run_passes(
    module: HloModule,
    passes: Iterable[HloPass],
    after: AfterPass | None = None,
    max_rounds: int = MAX_ROUNDS,
) -> bool:
    """The whole list again and again until a round changes nothing; True when any changed the module."""
    steps = tuple(passes)
    for round_number in range(max_rounds):
        if not run_once(module, steps, after):
            return round_number > 0
    return True
