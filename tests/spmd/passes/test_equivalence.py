"""Simplified programs compute what they did: random ones, before and after partitioning, and JAX's.

Equal bits, but for floating-point sums that were merged (docs/numerics.md): these within a few ulp of their largest
element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partitioner.spmd_partitioner import partition_module
from spmd.evaluator.evaluator import evaluate, evaluate_partitions
from spmd.hlo import HloModule, Stage
from spmd.hlo.clone import clone_module
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.call_inliner import CallInliner
from spmd.passes.pipeline import run_passes
from spmd.shape import ArrayShape, PrimitiveType
from spmd.verifier import verify
from tests.differential.generator.writer import inputs_of
from tests.strategies import generate

Array = np.ndarray[Any, np.dtype[Any]]

#: The unpartitioned evaluator finds a manual region's extent by its call.
LOGICAL_PASSES = tuple(
    CallInliner(keep_uninlineable=True) if isinstance(step, CallInliner) else step
    for step in SIMPLIFICATION
)


def simplified(module: HloModule) -> HloModule:
    """A simplified copy, verified after each pass."""
    copy = clone_module(module)
    passes = LOGICAL_PASSES if module.stage is Stage.LOGICAL else SIMPLIFICATION
    run_passes(copy, passes, lambda done: verify(copy) if done.changed else None)
    return copy


def assert_same(wanted: list[Array], found: list[Array]) -> None:
    for want, got in zip(wanted, found, strict=True):
        assert want.dtype == got.dtype
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(want, got)
            continue
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        finite = want.astype(wide)[np.isfinite(want.astype(wide))]
        scale = float(np.abs(finite).max(initial=0.0))
        ulp = 2.0**-8 if want.dtype.itemsize < 4 else 2.0**-23
        np.testing.assert_allclose(
            got.astype(wide), want.astype(wide), rtol=0, atol=8 * ulp * scale
        )


def random_value(shape: ArrayShape, rng: np.random.Generator) -> Array:
    if shape.element_type is PrimitiveType.PRED:
        return rng.random(shape.dims) < 0.5
    low = 0 if shape.element_type.is_integer else -8
    return np.asarray(rng.integers(low, 9, shape.dims)).astype(shape.element_type.numpy)


def random_shards(module: HloModule, devices: int, seed: int) -> list[list[Array]]:
    """Parameters for every device; scalars are the same everywhere, as loops and branches need."""
    rng = np.random.default_rng(seed)
    shapes = [p.array_shape for p in module.entry.parameters]
    common = [random_value(shape, rng) for shape in shapes]
    return [
        [random_value(s, rng) if s.dims else c for s, c in zip(shapes, common, strict=True)]
        for _ in range(devices)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    program = generate(seed)
    module, inputs = program.module, inputs_of(program.module, seed)
    assert_same(evaluate(module, *inputs), evaluate(simplified(module), *inputs))

    local = partition_module(module, program.num_devices)
    shards = random_shards(local, program.num_devices, seed)
    wanted = evaluate_partitions(local, shards)
    found = evaluate_partitions(simplified(local), shards)
    for want, got in zip(wanted, found, strict=True):
        assert_same(want, got)


def test_simplification_is_stable() -> None:
    """A second run finds nothing to do."""
    for seed in range(20):
        module = simplified(generate(seed).module)
        assert not run_passes(module, LOGICAL_PASSES)
