"""The copied corpus cases: JAX's results on loopback devices, within a memory budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from tests.runtime.compiled_cases import compiled_case

NAMES = (
    "einsums_2x4",
    "elementwise_zoo_x4",
    "gpt_dp2tp2",
    "kv_decode_dp2tp2",
    "mlp_dp4tp2",
    "mlp_fsdp8",
    "ring_attention4",
    "shmap_collectives_2x4",
)

#: Arguments and temporaries, as a multiple of XLA's.
BUDGET = 1.5


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, cases: Path) -> None:
    case = compiled_case(cases / name)
    memory = json.loads((cases / name / "case.json").read_text())["peer"]["memory"]
    budget = memory["argument_size_in_bytes"] + memory["temp_size_in_bytes"]
    stats = case.compiled.stats
    assert stats.arguments == memory["argument_size_in_bytes"]
    assert stats.arguments + stats.temp <= BUDGET * budget
    inputs = read_inputs(cases / name / "inputs.npz", case.entry.inputs)
    outputs = case.compiled.run(*inputs)
    assert isinstance(outputs, list)
    wanted = read_expected(cases / name / "expected.npz", case.entry.outputs)
    for got, want in zip(outputs, wanted, strict=True):
        result = check_output(got, want)
        assert result.ok, result
