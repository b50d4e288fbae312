"""Real programs with collectives in flight beside other work: JAX's results, and what is checked of every program."""

from __future__ import annotations

import pytest

from collectives.schedule.phases import is_start
from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from launch.entry import Entry
from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.machine.named import machine_named
from spmd.text.sources.load import load
from tests.paths import CASES

#: Links on which it pays to hide what there is; nodes of two devices.
MACHINE = "tcp-cluster{links=0.25,node=2}"
#: Where everything is one step after the other.
NOTHING_TO_HIDE = {"mlp_dp2", "zoo_principal_components_x4"}
#: All but the one that takes as long as the others together: tests/mpi/test_overlap.py checks and runs it on ranks.
NAMES = sorted({path.parent.name for path in CASES.glob("*/case.json")} - {"gpt_dp2tp2"})


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    module = load(CASES / name / "module.hlo")
    entry = Entry.of_module(module)
    options = CompileOptions(machine=machine_named(MACHINE), check=True)
    executable = compile_module(module, None, options)
    in_flight = sum(is_start(x) for c in executable.module.computations for x in c.instructions)
    assert executable.overlap is not None
    assert (in_flight > 0) != (name in NOTHING_TO_HIDE)
    outputs = executable.run(*read_inputs(CASES / name / "inputs.npz", entry.inputs))
    expected = read_expected(CASES / name / "expected.npz", entry.outputs)
    checks = [check_output(got, want) for got, want in zip(outputs, expected, strict=True)]
    assert [check.name for check in checks if not check.ok] == []
