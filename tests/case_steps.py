"""Real programs of tests/cases, run for two steps on whatever executes them."""

from __future__ import annotations

from pathlib import Path

from launch.entry import Entry
from launch.execution import execute_steps
from launch.npz import Array
from runtime.executable import Executable

CASES = Path(__file__).parent / "cases"


def two_steps(executable: Executable, entry: Entry, inputs: list[Array]) -> list[Array]:
    """The outputs of the second step, where this process gets them."""
    done = execute_steps(executable, executable.put(inputs), 2, entry.feedback)
    return executable.get(done.outputs)
