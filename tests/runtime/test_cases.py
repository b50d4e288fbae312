"""The copied corpus cases: JAX's results on loopback devices, within a memory budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from launch.entry import Entry
from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.compile import build_executable
from runtime.executable import Executable
from spmd.hlo import HloModule
from spmd.text.parser import parse_module

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


def compile_case(folder: Path) -> tuple[HloModule, Executable, dict[str, object]]:
    case = json.loads((folder / "case.json").read_text())
    module = parse_module((folder / "module.hlo").read_text())
    *_, (_, compilation) = stages(module, case["num_partitions"], CompileOptions())
    return module, build_executable(compilation.module, logical=module), case


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, cases: Path) -> None:
    module, executable, case = compile_case(cases / name)
    memory = case["peer"]["memory"]  # type: ignore[index]
    budget = memory["argument_size_in_bytes"] + memory["temp_size_in_bytes"]
    stats = executable.stats
    assert stats.arguments == memory["argument_size_in_bytes"]
    assert stats.arguments + stats.temp <= BUDGET * budget
    inputs = read_inputs(cases / name / "inputs.npz", Entry.of_module(module).inputs)
    outputs = executable.run(*inputs)
    assert isinstance(outputs, list)
    wanted = read_expected(cases / name / "expected.npz", Entry.of_module(module).outputs)
    for got, want in zip(outputs, wanted, strict=True):
        result = check_output(got, want)
        assert result.ok, result
