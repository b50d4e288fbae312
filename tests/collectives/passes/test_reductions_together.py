"""The passes on reductions one after another, with simplification before and behind, on modules that set off each of them."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator import evaluate_partitions
from spmd.hlo.clone import clone_module
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.options import make_pass
from spmd.passes.pipeline import Pipeline
from tests.spmd.passes.triggers.check import compare, random_inputs
from tests.spmd.passes.triggers.registry import trigger_of

REDUCTIONS = (
    "all-reduce-simplifier",
    "reduce-scatter-creator",
    "all-reduce-reassociate",
    "reduce-scatter-reassociate",
    "while-loop-all-reduce-code-motion",
    "all-reduce-combiner",
    "reduce-scatter-combiner",
)
TOGETHER = Pipeline("reductions", tuple(make_pass(name) for name in REDUCTIONS))
SIMPLIFY = Pipeline("simplification", SIMPLIFICATION, repeated=True)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_all_in_a_row(name: str) -> None:
    trigger = trigger_of(name)
    assert trigger is not None
    for seed in range(5):
        rng = np.random.default_rng(seed)
        module = trigger.modules(rng)
        before = clone_module(module)
        for pipeline in (SIMPLIFY, TOGETHER, SIMPLIFY):
            pipeline.run(module)
        inputs = random_inputs(before, rng, edges=False)
        wanted, found = evaluate_partitions(before, inputs), evaluate_partitions(module, inputs)
        compare(before, inputs, wanted, found)
