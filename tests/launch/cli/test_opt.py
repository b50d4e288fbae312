"""`spmd opt`: the propagated stage and dumps between passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.cli import main
from spmd.hlo import Stage
from spmd.passes.interface import PASSES
from spmd.text.sources.load import load
from tests.paths import CASES

PROPAGATION = "sharding-propagation"
MODULE = str(CASES / "mlp_dp2" / "module.hlo")


def test_until_propagated_shows_a_sharding_on_every_instruction(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["opt", MODULE, "--until", "propagated", "--dump-to", str(tmp_path / "d")]) == 0
    text = capsys.readouterr().out
    printed = tmp_path / "m.hlo"
    printed.write_text(text)
    entry = load(printed).entry
    assert all(instruction.sharding is not None for instruction in entry.instructions)
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [
        f"module_0000.jit_step.0001.{PROPAGATION}.after_{PROPAGATION}.before_pipeline-end.txt",
        "module_0000.jit_step.before_optimizations.txt",
    ]


def test_nothing_to_propagate_in_one_devices_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.hlo"
    assert main(["partition", MODULE, "--devices", "2", "-o", str(path)]) == 0
    assert main(["opt", str(path), "--until", "propagated"]) == 2
    assert "no propagated stage" in capsys.readouterr().err


def test_dumps_before_and_after_the_passes_that_were_asked_for(tmp_path: Path) -> None:
    module = str(CASES / "einsums_2x4" / "module.hlo")
    arguments = ["opt", module, "--until", "optimized", "-o", str(tmp_path / "o")]
    dumps = ["--dump-to", str(tmp_path / "d"), "--dump-pass-re", "algebraic|constant"]
    assert main([*arguments, *dumps]) == 0
    wanted = {"algebraic-simplifier", "constant-folding"}
    found = set()
    for path in (tmp_path / "d").glob("*.simplification.*"):
        after, before = path.name.removesuffix(".txt").split(".after_")[1].split(".before_")
        found |= {after, before}
        assert {after, before} & wanted
        assert {after, before} <= {*PASSES, "pipeline-end"}
        load(path)
    assert wanted < found  # their neighbours too


def test_pass_timing_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", MODULE, "--until", "optimized", "--pass-timing"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("HloModule")
    lines = err.splitlines()
    assert lines[0].split() == ["pass", "runs", "changed", "seconds"]
    assert lines[-1].startswith("total")
    runs = {line.split()[0]: int(line.split()[1]) for line in lines[1:-1]}
    assert runs["algebraic-simplifier"] >= 1


def test_a_whole_compilation_in_files_that_are_named_as_xla_names_them(tmp_path: Path) -> None:
    dumps, printed = tmp_path / "d", tmp_path / "o"
    arguments = ["--until", "thunks", "--dump-to", str(dumps), "-o", str(printed)]
    assert main(["opt", MODULE, *arguments]) == 0
    stem = "module_0000.jit_step"
    names = sorted(path.name for path in dumps.iterdir())
    assert [names[0], *names[2:]] == [
        f"{stem}.0001.spmd-partitioner.after_spmd-partitioner.before_pipeline-end.txt",
        f"{stem}.after_optimizations-buffer-assignment.txt",
        f"{stem}.after_optimizations.txt",
        f"{stem}.before_optimizations.txt",
        f"{stem}.thunk_sequence.txt",
    ]
    assert names[1].endswith("optimize.after_optimize.before_pipeline-end.txt")
    assert load(dumps).name == "jit_step"  # as a directory of --xla_dump_to
    assert load(dumps / f"{stem}.after_optimizations.txt").stage is Stage.SCHEDULED
    assert (dumps / f"{stem}.thunk_sequence.txt").read_text() == printed.read_text()
    buffers = (dumps / f"{stem}.after_optimizations-buffer-assignment.txt").read_text()
    assert "allocation 0: size" in buffers
    assert "preallocated-temp, " in buffers
    assert "(peak):" in buffers


@pytest.mark.parametrize(
    ("dumps", "message"),
    [
        (["--dump-pass-re", "x"], "--dump-pass-re needs --dump-to"),
        (["--dump-pass-re", "(", "--dump-to", "build/unused"], "--dump-pass-re (: "),
    ],
)
def test_says_what_is_wrong_with_dump_options(
    dumps: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", MODULE, "--until", "optimized", *dumps]) == 2
    assert message in capsys.readouterr().err
