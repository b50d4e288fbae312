"""A loaded program's steps take nothing from malloc or mmap, and leave nothing; and the counters see who does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.memory.step_allocations import SLACK, Counted, count_python, counting_environment
from tests.paths import CASES

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="the counter needs a C compiler")


@needs_compiler
def test_a_hundred_steps_allocate_nothing(tmp_path: Path) -> None:
    """Four devices of one process: loops, collectives, native kernels."""
    target = tmp_path / "counted.json"
    command = [sys.executable, "-m", "benchmarks.memory.step_allocations"]
    done = subprocess.run(
        [*command, str(CASES / "ring_attention4" / "module.hlo"), "--json", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted: dict[str, Any] = json.loads(target.read_text())
    assert counted["steps"] == 100
    assert abs(counted["python_net"]) <= SLACK


@needs_compiler
def test_the_counter_sees_arrays_and_their_sizes(tmp_path: Path) -> None:
    program = (
        "import numpy as np\n"
        "from benchmarks.memory.step_allocations import count_native\n"
        "asked = count_native(lambda: [np.empty(3_000_001, np.uint8) for _ in range(7)])\n"
        "print(sum(a.calls for a in asked if a.largest == 3_000_001))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=counting_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == 7


@pytest.mark.usefixtures("own_objects_alone_are_collected")
def test_what_stays_and_what_comes_and_goes_are_told_apart() -> None:
    kept: list[Any] = []
    counted = Counted(1)
    count_python(lambda: kept.append(np.zeros(100_000, np.uint8)), counted)
    assert counted.grows
    passing = Counted(1)
    count_python(lambda: np.zeros(100_000, np.uint8).sum(), passing)
    assert not passing.grows
    assert passing.python_peak > 100_000
