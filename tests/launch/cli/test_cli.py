"""Tests of the `spmd` command in process: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import spmd
from launch.cli import build_parser, main
from spmd.hlo import Stage
from spmd.text.sources.load import load
from tests.paths import CASES, TESTS

MLP = CASES / "mlp_dp2"
MODULE = str(MLP / "module.hlo")
INPUTS = ("--inputs", str(MLP / "inputs.npz"))
EXPECT = ("--expect", str(MLP / "expected.npz"))

SUM = """HloModule sum
ENTRY main {
  a = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  b = f32[4] parameter(1), sharding={devices=[2]<=[2]}
  ROOT c = f32[4] add(a, b), sharding={devices=[2]<=[2]}
}
"""


@pytest.fixture
def sum_module(tmp_path: Path) -> str:
    path = tmp_path / "sum.hlo"
    path.write_text(SUM)
    return str(path)


def test_run_agrees_with_jax(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", MODULE, *INPUTS, *EXPECT]) == 0
    assert "all 7 outputs agree on 2 devices of this process" in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_run_json_has_the_keys_that_scripts_read(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", MODULE, *INPUTS, *EXPECT, "--json", "--backend", backend]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is True
    assert len(result["outputs"]) == 7
    for output in result["outputs"]:
        assert {"name", "shape", "dtype", "max_abs_diff", "max_rel_diff", "ok"} <= set(output)
    assert result["first_diverging_op"] is None
    assert set(result["step_ms"]) == {"median", "min", "max"}


def test_expected_outputs_of_unknown_inputs_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", MODULE, *EXPECT]) == 2
    assert "--inputs" in capsys.readouterr().err


def test_run_check_holds_over_several_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", MODULE, "--seed", "3", "--check", "--steps", "3"]) == 0
    assert "all 7 outputs agree" in capsys.readouterr().out


def test_run_writes_outputs_that_it_then_expects(tmp_path: Path, sum_module: str) -> None:
    out = str(tmp_path / "out.npz")
    assert main(["run", sum_module, "--outputs", out]) == 0
    with np.load(out) as stored:
        assert stored["out0"].shape == (4,)
    exact = ["--atol", "0", "--rtol", "0"]
    assert main(["run", sum_module, "--seed", "0", "--expect", out, *exact]) == 0
    assert main(["run", sum_module, "--seed", "1", "--expect", out]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nowhere.hlo"), "nowhere.hlo: No such file"),
        (("run", MODULE, "--inputs", "nowhere.npz"), "nowhere.npz: not a readable .npz file"),
        (("run", MODULE, "--devices", "3"), "the module is for 2 devices, but 3 were requested"),
        (("opt", MODULE, "--passes", "no-such-pass"), "no pass is named 'no-such-pass'"),
        (("run", MODULE, "--outputs", "nowhere/out.npz"), "there is no folder nowhere"),
        (("run", MODULE, "--profile", "nowhere/t.json"), "there is no folder nowhere"),
        (("run", MODULE, "--backend", "reference", "--outputs", "/"), "it is a folder"),
        (("compile", MODULE, "-o", "nowhere/f.spmdx"), "there is no folder nowhere"),
        (("partition", MODULE, "-o", "nowhere/f.hlo"), "there is no folder nowhere"),
        (("opt", MODULE, "-o", "nowhere/f.pb"), "there is no folder nowhere"),
        (("opt", MODULE, "--dump-to", f"{MODULE}/dumps"), "module.hlo is not a folder"),
        (("explain", MODULE, "--html", "nowhere/f.html"), "there is no folder nowhere"),
        (
            ("run", MODULE, "--outputs", "o.npz", "--profile", "./o.npz"),
            "two output options name this file",
        ),
        (("run", MODULE, "--inputs", "no.npz"), "no.npz: not a readable .npz file: No such file"),
        (("run", MODULE, "--inputs", MODULE), "module.hlo: not a readable .npz file: "),
        (("run", MODULE, "--machine", MODULE), "expected a machine's name or a description F.json"),
        (("run", MODULE, "--machine", "dgxh100"), "named 'dgxh100'; did you mean dgx-h100? there"),
        (
            ("run", MODULE, "--machine", "dgx-h100{link=2}"),
            "it is varied as dgx-h100{links=FACTOR}",
        ),
        (("simulate", MODULE, "--topology", "dgx-h10{node=2}"), "did you mean dgx-h100? there"),
        (("explain", MODULE, "--op", "dot.11"), "did you mean dot.1"),
        (("opt", MODULE, "--passes", "while-loop-simplify"), "did you mean while-loop-simplifier?"),
        (
            ("launch", "-n", "2", "--", "explian", MODULE),
            "no command 'explian'; did you mean explain?",
        ),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("spmd: error: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats",),
        ("opt",),
        ("explain",),
        ("simulate", "--topology", "dgx-h100"),
        ("run", "--backend", "reference"),
    ],
)
def test_a_saved_program_where_a_module_is_wanted(
    arguments: tuple[str, ...],
    sum_module: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = tmp_path / "sum.spmdx"
    spmd.compile(spmd.parse(SUM)).save(saved)
    assert main([*arguments, str(saved)]) == 2
    said = "sum.spmdx is an executable that `spmd compile` wrote, which only run, bench and profile accept"
    assert said in capsys.readouterr().err
    with saved.open("rb") as file:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=file))
        assert main([*arguments, "-"]) == 2
    assert "<stdin> is an executable that" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stats", "run"])
def test_a_module_from_a_pipe_is_read_once(command: str, tmp_path: Path) -> None:
    """A pipe can be read only once, as in `spmd stats <(cat sum.hlo)`: bytes that were looked at are gone."""
    pipe = tmp_path / "sum.hlo"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_text, SUM)
        code = main([command, str(pipe)])
        if not written.done():  # nobody has opened it
            os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        written.result(60)
    assert code == 0


def test_a_saved_program_says_what_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "sum.spmdx"
    spmd.compile(spmd.parse(SUM)).save(saved)
    assert main(["run", str(saved), "--machine", "dgx-h100", "--without", "latency-hiding"]) == 0
    said = "sum.spmdx is compiled already: --machine and --without have no effect"
    assert said in capsys.readouterr().err
    assert main(["run", str(saved)]) == 0
    assert capsys.readouterr().err == ""


def test_one_device_file_may_take_several_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["profile", MODULE, "--steps", "1", "--trace", "/dev/null", "--html", "/dev/null"])
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "required: COMMAND"),
        (("run",), "required: MODULE"),
        (("run", MODULE, "--steps", "0"), "--steps: expected at least 1, found 0"),
        (("run", MODULE, "--devices", "two"), "--devices: expected an integer, found 'two'"),
        (("run", MODULE, "--timeout", "0"), "--timeout: expected more than 0 seconds, found 0"),
        (
            ("bench", MODULE, "--timeout", "1h"),
            "--timeout: expected a number of seconds, found '1h'",
        ),
        (("opt", MODULE, "--until", "done"), "invalid choice: 'done'"),
        (("run", MODULE, "--seed", "-1"), "--seed: expected 0 or more, found -1"),
        (("bench", MODULE, "--seed", "one"), "--seed: expected an integer, found 'one'"),
        (("profile", MODULE, "--seed", "-1"), "--seed: expected 0 or more, found -1"),
        (
            ("run", MODULE, "--atol", "nan"),
            "--atol: expected a number that is 0 or more, found nan",
        ),
        (("run", MODULE, "--rtol", "-1"), "--rtol: expected a number that is 0 or more, found -1"),
        (("run", MODULE, "--rtol", "x"), "--rtol: expected a number that is 0 or more, found x"),
    ],
)
def test_bad_usage_exits_with_two(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr().err
    assert "usage: spmd" in captured
    assert message in captured


COMMANDS = (
    "run",
    "compile",
    "opt",
    "partition",
    "explain",
    "stats",
    "bench",
    "calibrate",
    "profile",
    "simulate",
    "launch",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_every_option_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: spmd {command}" in capsys.readouterr().out
    (subparsers,) = (a.choices for a in build_parser()._actions if a.dest == "command")
    assert isinstance(subparsers, dict)
    parser = subparsers[command]
    assert [a.dest for a in parser._actions if not a.help] == []
    assert "%%" not in parser.format_help()


def test_opt_prints_what_parses_to_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for stage in ("logical", "partitioned", "optimized", "scheduled"):
        assert main(["opt", MODULE, "--until", stage]) == 0
        text = capsys.readouterr().out
        printed = tmp_path / f"{stage}.hlo"
        printed.write_text(text)
        assert str(load(printed)).rstrip("\n") == text.rstrip("\n")


def test_opt_dumps_every_stage_on_its_way(tmp_path: Path) -> None:
    assert (
        main(
            [
                "opt",
                MODULE,
                "--until",
                "optimized",
                "--dump-to",
                str(tmp_path / "d"),
                "-o",
                str(tmp_path / "o"),
            ]
        )
        == 0
    )
    names = sorted(path.name for path in (tmp_path / "d").iterdir())
    assert names == [
        "module_0000.jit_step.0001.spmd-partitioner.after_spmd-partitioner.before_pipeline-end.txt",
        names[1],
        "module_0000.jit_step.before_optimizations.txt",
    ]
    assert names[1].endswith(".optimize.after_optimize.before_pipeline-end.txt")
    assert (tmp_path / "o").read_text() == (tmp_path / "d" / names[1]).read_text()


@pytest.mark.parametrize(("stage", "word"), [("buffers", "allocation"), ("thunks", "Kernel")])
def test_opt_shows_what_lies_below_hlo(
    stage: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", MODULE, "--until", stage]) == 0
    assert word in capsys.readouterr().out


@pytest.mark.parametrize("name", ["m.pb", "m.hlo.pb", "m.hlo_with_config.pb"])
def test_opt_writes_protos_that_it_reads(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert main(["opt", MODULE, "--until", "scheduled", "--devices", "2", "-o", str(path)]) == 0
    assert main(["opt", str(path)]) == 0
    assert "is_scheduled=true" in capsys.readouterr().out
    module = load(path)
    assert module.stage is Stage.SCHEDULED
    assert module.num_partitions == 2


def test_opt_lists_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", "--print-passes"]) == 0
    assert "dead-code-elimination" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("stage", ["partitioned", "scheduled"])
def test_opt_verifies_equivalence(stage: str, tmp_path: Path) -> None:
    arguments = ["opt", MODULE, "--until", stage, "--verify-equivalent", "-o", str(tmp_path / "o")]
    assert main(arguments) == 0


def test_partition_prints_local_shapes(sum_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", sum_module, "--devices", "2"]) == 0
    text = capsys.readouterr().out
    assert "f32[2]{0} add(" in text or "f32[2] add(" in text
    assert "num_partitions=2" in text


def test_stats_json_has_the_keys_that_scripts_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", MODULE, "--devices", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["module"] == "jit_step"
    assert figures["devices"] == 2
    assert {"logical", "partitioned", "optimized"} <= set(figures["instructions"])
    assert {"arguments", "outputs", "aliased", "temp", "peak_live"} <= set(figures["memory"])
    assert figures["collectives"]["all-reduce"]["count"] > 0
    assert figures["wire_bytes"] > 0
    assert figures["flops"] > 0
    assert figures["kernels"] > 0
    assert figures["compile_s"]["total"] > 0


def test_stats_for_a_reader(sum_module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", sum_module, "--devices", "2"]) == 0
    text = capsys.readouterr().out
    assert "sum on 2 devices" in text
    assert "flops" in text


def test_bench_json_has_the_keys_that_scripts_read(
    sum_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", sum_module, "--repeat", "3", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures["step_ms"]) == {"median", "min", "max"}
    assert (figures["devices"], figures["ranks"], figures["backend"]) == (2, 1, "cpu")
    assert figures["compile_s"] > 0
    assert figures["cached"] is False
    assert {"cpu", "cores", "blas", "blas_core", "versions"} <= set(figures["environment"])
    assert main(["bench", sum_module, "--repeat", "3"]) == 0
    printed = capsys.readouterr().out
    assert " a step (min " in printed
    # The step takes some microseconds: in milliseconds with two digits nothing would be left of them.
    assert re.search(r"predicted for \S+: [\d.]+ us \(\w+ [\d.]+ us[,)]", printed), printed


def test_a_module_on_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io
    import sys
    from types import SimpleNamespace

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(SUM.encode())))
    assert main(["opt", "-"]) == 0
    assert "HloModule sum" in capsys.readouterr().out


def test_another_compilers_per_device_program_runs_and_is_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fusions of a scheduled program are opened, and the lock-step evaluator checks the results."""
    fused = str(TESTS / "hlo" / "passes" / "defuser.hlo")
    for backend in ("cpu", "reference"):
        assert main(["run", fused, "--check", "--backend", backend]) == 0
        assert "all 1 outputs agree" in capsys.readouterr().out


def test_names_of_modules_are_printable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "sum.spmdx")
    module = spmd.parse(SUM)
    module.name = "a\x1b[2J\nb"
    monkeypatch.setattr("launch.cli.compile.read_module", lambda _: module)
    assert main(["compile", str(tmp_path / "sum.hlo"), "-o", saved]) == 0
    out = capsys.readouterr().out
    assert out.startswith(rf"{saved}: a\x1b[2J\nb for 2 devices")
