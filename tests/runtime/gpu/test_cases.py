"""The copied corpus cases: JAX's results from doubles of GPUs, one for each device."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from tests.runtime.compiled_cases import compiled_case
from tests.runtime.gpu.doubles.engines import Doubles

NAMES = (
    "einsums_2x4",
    "elementwise_zoo_x4",
    "gpt_dp2tp2",
    "kv_decode_dp2tp2",
    "mlp_dp2",
    "mlp_dp4tp2",
    "mlp_fsdp8",
    "ring_attention4",
    "shmap_collectives_2x4",
)


@pytest.mark.parametrize("ptx", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, ptx: bool, cases: Path) -> None:
    case = compiled_case(cases / name)
    executable = Doubles(ptx=ptx).on(case.executable())
    inputs = read_inputs(cases / name / "inputs.npz", case.entry.inputs)
    wanted = read_expected(cases / name / "expected.npz", case.entry.outputs)
    for _ in range(3 if ptx else 1):  # done one by one, captured, replayed
        outputs = executable.run(*inputs)
        assert isinstance(outputs, list)
        for got, want in zip(outputs, wanted, strict=True):
            result = check_output(got, want)
            assert result.ok, result
