"""Every schedule that the latency-hiding scheduler makes can run, keeps its limits, and means what the program meant."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.passes.async_creation import AsyncCreation
from collectives.passes.async_to_sync import AsyncToSync
from collectives.schedule.latency_hiding import LatencyOptions, schedule_for_latency
from collectives.schedule.overlap_limits import OverlapLimits
from spmd.analysis.live_bytes import peak_bytes
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule
from spmd.hlo.module import InputOutputAlias
from spmd.verifier import verify
from tests.collectives.schedule.random_programs import SIZE, random_program
from tests.collectives.schedule.table_estimator import TableEstimator, random_estimator
from tests.collectives.schedule.window_checker import check_windows


def inputs(rng: np.random.Generator, module: HloModule) -> list[list[np.ndarray]]:
    return [
        [rng.integers(-9, 9, SIZE).astype(np.float32) for _ in module.entry.parameters]
        for _ in range(module.num_partitions)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_can_run_and_means_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = random_program(seed, devices=int(rng.integers(2, 6)))
    arrays = inputs(rng, module)
    wanted = evaluate_partitions(module, arrays)
    AsyncCreation().run(module)
    if rng.random() < 0.5:
        module.input_output_alias = (InputOutputAlias((0,), int(rng.integers(3))),)
    verify(module)
    before = peak_bytes(module)
    tight = bool(rng.random() < 0.5)
    limits = OverlapLimits(
        per_exchange=int(rng.integers(1, 3)),
        apart=bool(rng.random() < 0.5),
        in_flight=int(rng.integers(0, 3)),
    )
    limit = before if tight else None
    report = schedule_for_latency(
        module, random_estimator(rng), LatencyOptions(limits, memory_limit=limit)
    )
    check_windows(module, limit, apart=limits.apart)
    assert report.seconds <= report.seconds_before
    assert peak_bytes(module) == report.peak
    if rng.random() < 0.5:
        AsyncToSync().run(module)
        check_windows(module, apart=limits.apart)
    verify(module)
    for got, want in zip(evaluate_partitions(module, arrays), wanted, strict=True):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_schedules_are_deterministic() -> None:
    texts = []
    for _ in range(2):
        module = random_program(3, devices=4, steps=40)
        AsyncCreation().run(module)
        schedule_for_latency(module, TableEstimator({}, lambda x: 1.0 + len(x.operands)))
        texts.append(str(module))
    assert texts[0] == texts[1]
