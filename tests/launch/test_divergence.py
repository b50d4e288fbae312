"""`spmd run --check` names the op that goes wrong first: planted bugs, and none in sound programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import launch.divergence
import spmd
from launch.cli import main
from launch.divergence import first_diverging_op
from launch.entry import Entry
from launch.inputs import read_inputs, seeded_inputs
from launch.npz import Array
from partitioner.context import PartitionContext, ShardedValue
from runtime.executable import Executable
from spmd.hlo import HloInstruction

GPT = Path(__file__).parent.parent / "cases" / "gpt_dp2tp2"
UNEVEN_SUM = """
HloModule uneven_sum, num_partitions=2
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[5,4] parameter(0), sharding={devices=[2,1]<=[2]}
  zero = f32[] constant(0)
  grown = f32[5,4] exponential(x)
  total = f32[4] reduce(grown, zero), dimensions={0}, to_apply=plus
  turned = f32[4] negate(total)
  copies = f32[5,4] broadcast(turned), dimensions={1}
  ROOT y = f32[5,4] multiply(copies, grown), sharding={devices=[2,1]<=[2]}
}
"""


@pytest.fixture
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding of uneven tiles (exp(0) = 1 here) goes into every sum."""

    def mask_padding(
        _: PartitionContext, value: ShardedValue, dims: object, fill: object
    ) -> HloInstruction:
        return value.hlo

    monkeypatch.setattr(PartitionContext, "mask_padding", mask_padding)


def diverging(module: spmd.HloModule, devices: int, inputs: list[Array]) -> str | None:
    return first_diverging_op(module, devices, inputs, spmd.CompileOptions())


def test_a_sound_program_has_none() -> None:
    """A training step, whose cancellations bring roundings up far above the tolerance of its outputs."""
    module = spmd.load(GPT / "module.hlo")
    assert (
        diverging(module, 4, read_inputs(GPT / "inputs.npz", Entry.of_module(module).inputs))
        is None
    )


@pytest.mark.parametrize("batch_bytes", [1, 64 << 20])
@pytest.mark.usefixtures("no_mask")
def test_a_planted_bug_is_named(batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value in each run, or all in one: the sum, not what is computed from it."""
    monkeypatch.setattr(launch.divergence, "BATCH_BYTES", batch_bytes)
    module = spmd.parse(UNEVEN_SUM)
    assert diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs)) == "total"


@pytest.mark.usefixtures("no_mask")
def test_run_check_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(UNEVEN_SUM)
    assert main(["run", str(path), "--check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_diverging_op"] == "total"
    assert main(["run", str(path), "--check"]) == 1
    assert "first diverging op: total" in capsys.readouterr().out


@pytest.mark.parametrize("flags", ["{true}", "{false}", "{true,false}"])
@pytest.mark.usefixtures("no_mask")
def test_the_flags_of_a_dumped_module_are_no_obstacle(flags: str) -> None:
    """XLA's dumps state a flag for each result, and the search adds results."""
    header = f"num_partitions=2, allow_spmd_sharding_propagation_to_output={flags}"
    text = UNEVEN_SUM.replace("num_partitions=2", header)
    if "," in flags:
        text = text.replace("ROOT y =", "y =").replace(
            "}\n}", "}\n  ROOT pair = (f32[5,4], f32[4]) tuple(y, total)\n}"
        )
    module = spmd.parse(text)
    assert diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs)) == "total"


@pytest.mark.parametrize("error", [KeyError("x"), spmd.errors.RunError("no memory\nat all")])
@pytest.mark.usefixtures("no_mask")
def test_a_search_that_fails_does_not_cost_the_report(
    error: Exception,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(launch.divergence, "first_diverging_op", fail)
    path = tmp_path / "m.hlo"
    path.write_text(UNEVEN_SUM)
    assert main(["run", str(path), "--check"]) == 1
    printed = capsys.readouterr().out
    assert "DIFFERS" in printed
    assert printed.count("the search for the first diverging op failed") == 1
    assert "at all" not in printed


def test_a_kernel_that_errs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are run, not evaluated: a fault below the partitioner shows too."""
    original = Executable.run

    def run(self: Executable, *arrays: Array) -> list[Array]:
        return [np.where(out < 0, 0, out) for out in original(self, *arrays)]

    monkeypatch.setattr(Executable, "run", run)
    module = spmd.parse(UNEVEN_SUM)
    assert diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs)) == "turned"
