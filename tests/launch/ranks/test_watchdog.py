"""Tests of the watchdog of a rank: its verdict on a job that does not start, and what it does once its rank is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mpi_available import needs_mpi

from collectives.communicator.liveness.process_state import ProcessId
from launch.mpirun import MpiJob
from launch.ranks import watchdog
from tests.paths import CASES

#: A launcher that ignores SIGTERM, and one that still has a rank; each prints a line when it is ready.
WEDGED = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print(); sys.stdout.flush(); time.sleep(20)"
BUSY = "import subprocess, sys; one = subprocess.Popen(('sleep', '2')); print(); sys.stdout.flush(); one.wait()"


@pytest.fixture
def one_node(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def tell(local: int) -> None:
        monkeypatch.setattr(watchdog, "_LAUNCHER_SECONDS", 1.0)
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", str(local))

    return tell


def after_its_ranks(program: str, swept: Path) -> tuple[int, str]:
    """Return how a launcher ends, and what it has written, while a watchdog waits for it to clean up."""
    swept.mkdir()
    with subprocess.Popen(
        (sys.executable, "-c", program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        found = ProcessId.of(launcher.pid)
        assert found is not None
        watchdog._sweep(found, [str(swept)])
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


class Machine:
    """A machine with a clock, and the seconds that a starting rank has waited for a core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.queued = 0.0
        monkeypatch.setattr(watchdog.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(watchdog, "children_of", lambda _: [os.getpid()])
        monkeypatch.setattr(ProcessId, "queued_seconds", lambda _: self.queued)

    def seconds_until_given_up(self, watch: watchdog._Watch, share: float) -> float:
        """Return the seconds until the verdict, where a rank has ``share`` of a core; at most an hour."""
        begin = self.now
        while watch.verdict() is None and self.now - begin < 3600:
            self.now += 0.25
            self.queued += 0.25 * (1 - share)
        return self.now - begin


@pytest.mark.parametrize(("share", "seconds"), [(1.0, 120), (0.1, 1200)])
def test_the_time_to_start_is_time_with_a_core(
    monkeypatch: pytest.MonkeyPatch, share: float, seconds: float
) -> None:
    machine = Machine(monkeypatch)
    watch = watchdog._Watch(1)
    watch.timeout_seconds = 3.0
    assert machine.seconds_until_given_up(watch, share) == pytest.approx(seconds, rel=0.01)
    verdict = watch.verdict()
    assert verdict is not None
    assert "not all ranks have started within" in verdict.why


@pytest.mark.parametrize(("timeout", "seconds"), [(3.0, 3), (300.0, 10)])
def test_a_rank_that_ended_is_not_waited_for_in_mpis_start(
    monkeypatch: pytest.MonkeyPatch, timeout: float, seconds: float
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
    monkeypatch.setattr(watchdog, "_rank_of", lambda _: "1")
    machine = Machine(monkeypatch)
    watch = watchdog._Watch(1, 3)
    watch.timeout_seconds = timeout
    machine.now += 60
    assert watch.verdict() is None, "this rank may have no need of the others"
    watch.joins = True
    assert machine.seconds_until_given_up(watch, 1.0) == pytest.approx(seconds, abs=0.5)
    verdict = watch.verdict()
    assert verdict is not None
    assert verdict.why == "ranks 0, 2 ended before MPI had started"
    watch.has_started = True
    assert watch.verdict() is None, "a rank that has done its work may end"


def test_ranks_of_other_nodes_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    machine = Machine(monkeypatch)
    for local, given_up in ((1, 120), (2, 10)):
        watch = watchdog._Watch(1, local)
        watch.timeout_seconds = 60.0
        watch.joins = True
        assert machine.seconds_until_given_up(watch, 1.0) == pytest.approx(given_up, abs=0.5)
    verdict = watch.verdict()
    assert verdict is not None
    assert verdict.why == "1 of 2 ranks of this node ended before MPI had started"


@needs_mpi
def test_a_rank_that_ends_with_zero_before_mpi_ends_the_job() -> None:
    module = CASES / "mlp_dp2" / "module.hlo"
    one = f"exec {sys.executable} -m launch run {module} --timeout 1"
    job = MpiJob(2, ("sh", "-c", f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exit 0; fi; {one}'))
    done = subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.count("spmd: error: [rank 0] rank 1 ended before MPI had started") == 1


def test_processes_that_share_a_core_wait_for_it() -> None:
    """Two processes on one core each wait for about half of the time."""
    loop = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(flush=True)\nwhile 1: pass"
    command = (sys.executable, "-c", loop)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE) as other,
    ):
        try:
            for process in (one, other):
                assert process.stdout is not None
                process.stdout.readline()
            found = ProcessId.of(one.pid)
            assert found is not None
            if not Path(f"/proc/{one.pid}/schedstat").exists():
                pytest.skip("this system does not say")
            before = found.queued_seconds()
            time.sleep(0.5)
            assert found.queued_seconds() - before > 0.1
        finally:
            one.kill()
            other.kill()
