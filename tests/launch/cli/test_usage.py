"""Tests of the command's answers to --version and --help, and to a mistyped command or option."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import launch.cli
import spmd
from launch.cli import COMMANDS, build_parser, main


def test_the_version_and_what_it_runs_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["spmd", "Python", "numpy", "llvmlite", "mpi4py", "MPI"]
    assert spmd.__version__ == metadata.version("spmd-executor")
    assert "__version__" in dir(spmd)


@pytest.mark.parametrize(
    ("typed", "usage"), [("help run", "usage: spmd run"), ("help", "usage: spmd [")]
)
def test_help_is_a_command(typed: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 0
    assert capsys.readouterr().out.startswith(usage)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("stat m.hlo", "spmd has no command 'stat'; did you mean stats?"),
        ("xyzzy", "spmd has no command 'xyzzy'; the commands are run, compile, opt"),
        ("walk", "spmd has no command 'walk'; the commands are run, compile, opt"),
        ("help rum", "spmd has no command 'rum'; did you mean run?"),
        ("run m.hlo --see 3", "unrecognized arguments: --see 3"),
        ("run m.hlo --tim 3", "unrecognized arguments: --tim 3"),
    ],
)
def test_what_is_mistyped(typed: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    assert message in capsys.readouterr().err


def test_each_command_is_named_by_its_file() -> None:
    (subparsers,) = build_parser()._subparsers._group_actions  # type: ignore[union-attr]
    assert subparsers.choices is not None
    assert list(subparsers.choices) == list(COMMANDS)
    with_commands = {
        path.stem
        for path in Path(launch.cli.__file__).parent.glob("*.py")
        if "def add_arguments(" in path.read_text()
    }
    assert with_commands == set(COMMANDS)


@pytest.mark.parametrize("typed", ["launch -n 2 --dry-run -- run m.hlo", "--help"])
def test_a_command_imports_no_other(typed: str) -> None:
    """The modules that compile and run take most of a second to import."""
    program = "import sys, launch.cli; launch.cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        (sys.executable, "-c", program, *typed.split()), capture_output=True, text=True, check=True
    )
    imported = done.stderr.split()
    assert ("launch.cli.launch" in imported) == typed.startswith("launch")
    assert not {"launch.cli.run", "partitioner", "runtime", "llvmlite"} & set(imported)
