"""`--fusion`: kernels are made on the schedule, dumped, bisected and run; it is part of what ranks compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.cli import main
from launch.options import CompileOptions
from spmd.machine.named import machine_named

TEXT = """HloModule chain
ENTRY e {
  x = f32[64,32] parameter(0)
  y = f32[64,32] parameter(1)
  a = f32[64,32] tanh(x)
  b = f32[64,32] multiply(a, y)
  ROOT c = f32[64,32] subtract(b, x)
}
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "chain.hlo"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize(("options", "kernels"), [([], 1), (["--fusion"], 1), (["--no-fusion"], 0)])
def test_kernels_are_made_unless_asked_not_to(
    module: str, options: list[str], kernels: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", module, "--until", "scheduled", *options]) == 0
    printed = capsys.readouterr().out
    assert printed.count("kind=kLoop") == kernels
    assert "is_scheduled=true" in printed


def test_what_is_fused_runs_and_is_right(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", module, "--fusion", "--check"]) == 0
    assert main(["opt", module, "--until", "scheduled", "--fusion", "--verify-equivalent"]) == 0
    capsys.readouterr()


def test_the_pass_is_dumped(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dumps"
    command = ["opt", module, "--until", "thunks", "--fusion", "--dump-to", str(folder)]
    assert main([*command, "--dump-pass-re", "priority-fusion"]) == 0
    capsys.readouterr()
    names = [path.name for path in folder.iterdir() if "fusion.after_priority-fusion" in path.name]
    assert len(names) == 1
    assert names[0].endswith("before_pipeline-end.txt")


def test_fusions_are_bisected(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["opt", module, "--stage", "partitioned", "--until", "scheduled", "--bisect"]
    folder = ["--dump-to", str(tmp_path)]
    assert main([*command, "--passes", "priority-fusion", *folder]) == 0
    assert "no pass changes its results" in "".join(capsys.readouterr())


def test_ranks_compare_what_is_fused_and_for_which_machine() -> None:
    plain, fused = CompileOptions(fusion=False), CompileOptions()
    other = replace(machine_named(), row_seconds=1e-3)
    texts = {str(plain), str(fused), str(replace(fused, machine=other))}
    assert len(texts) == 3
    assert machine_named().digest in str(plain)
