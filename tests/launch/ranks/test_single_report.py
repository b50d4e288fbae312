"""One process of a job says why it ends: the first on its node that takes the name."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import pytest

from collectives.communicator.liveness.process_state import ProcessId
from launch.ranks.single_report import claim_report

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="abstract sockets are Linux's"
)


def claimed_by_another_process(launcher: ProcessId) -> bool:
    program = (
        "from collectives.communicator.liveness.process_state import ProcessId\n"
        "from launch.ranks.single_report import claim_report\n"
        f"print(claim_report({launcher!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


@pytest.mark.usefixtures("own_objects_alone_are_collected")
def test_the_first_process_of_a_job_reports_and_keeps_the_name() -> None:
    launcher = ProcessId(os.getpid(), time.monotonic_ns(), 0)
    assert claim_report(launcher)
    gc.collect()
    assert not claim_report(launcher)
    assert not claimed_by_another_process(launcher)


def test_a_name_is_free_again_when_its_process_has_ended() -> None:
    launcher = ProcessId(os.getpid(), time.monotonic_ns(), 0)
    assert claimed_by_another_process(launcher)
    assert claim_report(launcher)
