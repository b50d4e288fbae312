"""Simplified before partitioning, random programs compute what they did (tests/differential/test_optimized.py: after)."""

from __future__ import annotations

import pytest

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule
from spmd.hlo.clone import clone_module
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.call_inliner import CallInliner
from spmd.passes.pipeline import Pipeline, run_passes
from spmd.verifier import verify
from tests.differential.equivalence import compare
from tests.strategies import generate

#: The unpartitioned evaluator finds a manual region's extent by its call.
LOGICAL_PASSES = tuple(
    CallInliner(keep_uninlineable=True) if isinstance(step, CallInliner) else step
    for step in SIMPLIFICATION
)


def simplified(module: HloModule) -> HloModule:
    """A simplified copy, verified after each pass."""
    copy = clone_module(module)
    pipeline = Pipeline("logical", LOGICAL_PASSES, repeated=True)
    pipeline.run(copy, lambda done: verify(copy) if done.changed else None)
    return copy


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    """Results agree within what the program's own rounding explains.

    A second run finds nothing more to simplify.
    """
    program = generate(seed)
    module, inputs = program.module, program.inputs()
    simple = simplified(module)
    compare(module, inputs, evaluate(module, *inputs), evaluate(simple, *inputs)).require()
    assert not run_passes(simple, LOGICAL_PASSES), "a second run finds something"
