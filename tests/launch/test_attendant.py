"""What a rank's attendant does once its rank is gone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collectives.communicator.processes import ProcessId
from launch import attendant

#: A launcher that does not listen, and says first that it is there; the second one still has a rank.
WEDGED = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print(); sys.stdout.flush(); time.sleep(20)"
BUSY = "import subprocess, sys; one = subprocess.Popen(('sleep', '2')); print(); sys.stdout.flush(); one.wait()"


@pytest.fixture
def one_node(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def tell(local: int) -> None:
        monkeypatch.setattr(attendant, "_LAUNCHER_SECONDS", 1.0)
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", str(local))

    return tell


def after_its_ranks(program: str, swept: Path) -> tuple[int, str]:
    """How a launcher ends, and what it has written, while an attendant waits for it to sweep up."""
    swept.mkdir()
    with subprocess.Popen(
        (sys.executable, "-c", program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        found = ProcessId.of(launcher.pid)
        assert found is not None
        attendant._sweep(found, [str(swept)])
        _, errors = launcher.communicate()
    assert not swept.exists()
    return launcher.returncode, errors


def test_a_launcher_that_does_not_end_is_ended(
    one_node: Callable[[int], None], tmp_path: Path
) -> None:
    one_node(2)
    code, errors = after_its_ranks(WEDGED, tmp_path / "session")
    assert code == -signal.SIGKILL
    assert errors.startswith("spmd: error: the launcher (process ")
    assert "did not end within 1 s after its ranks" in errors


def test_a_launcher_whose_other_ranks_run_is_left_alone(
    one_node: Callable[[int], None], tmp_path: Path
) -> None:
    one_node(2)
    assert after_its_ranks(BUSY, tmp_path / "session") == (0, "")


def test_a_launcher_with_ranks_elsewhere_is_left_alone(
    one_node: Callable[[int], None], tmp_path: Path
) -> None:
    one_node(1)
    late = "import time; print(flush=True); time.sleep(1.6)"
    assert after_its_ranks(late, tmp_path / "session") == (0, "")
