"""Modules that XLA has optimized, for CPU and GPU, compute the recorded outputs of their cases on loopback devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.optimized_modules import measure

PEERS = (
    ("kv_decode_dp2tp2", "peer.hlo"),
    ("mlp_dp4tp2", "peer.hlo"),
    ("ring_attention4", "peer.hlo"),
    ("shmap_collectives_2x4", "peer.hlo"),
    ("einsums_2x4", "gpu.hlo"),
    ("kv_decode_dp2tp2", "gpu.hlo"),
    ("mlp_dp2", "gpu.hlo"),
)


@pytest.mark.parametrize(("name", "module"), PEERS)
def test_replay_computes_the_outputs_of_the_case(name: str, module: str, cases: Path) -> None:
    row = measure(cases / name, cases / name / module)
    assert row.agrees, str(row)
