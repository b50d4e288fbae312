"""Ctrl-C before the command is imported: exit code 130 without a word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Interrupts itself where the module that is named first is looked for.
PROGRAM = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
where = sys.argv[1]
from launch.__main__ import main
sys.argv[1:] = ["--help"] if where == "nothing" else ["run", "--help"]
sys.exit(main())
"""


def interrupted_at(name: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI_"))}
    return subprocess.run(
        (sys.executable, "-c", PROGRAM, name),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(
    "name", ["launch.ranks.rank_environment", "launch.cli", "numpy", "argparse"]
)
def test_an_interrupt_while_the_command_is_imported(name: str) -> None:
    done = interrupted_at(name)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_without_an_interrupt_the_command_runs() -> None:
    done = interrupted_at("nothing")
    assert done.returncode == 0
    assert "usage: spmd" in done.stdout


def test_the_entry_point_imports_nothing_of_the_project() -> None:
    program = "import sys, launch.__main__; print([m for m in sys.modules if m.startswith(('launch.', 'spmd', 'numpy', 'argparse'))])"
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['launch.__main__']"


def test_an_interrupt_while_python_ends_is_not_heard() -> None:
    program = """
import atexit, os, signal, sys
from launch.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["spmd", "--version"]
code = main()
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
