"""Short steps keep to one thread; longer ones get more, without other results."""

from __future__ import annotations

import numpy as np
import pytest

import runtime.cpu.step.thread_team
from runtime.cpu.loopback import LoopbackDevices
from runtime.cpu.step.thread_team import GrowingTeam
from runtime.executable import Executable
from tests.runtime.cpu.step.test_thread_team import PROGRAM as WITH_PYTHON
from tests.runtime.cpu.step.test_thread_team import on_cores, tiles
from tests.runtime.programs import compiled, exchange_loop

PROGRAM = exchange_loop(40, entry="ROOT y = f32[40] get-tuple-element(end), index=1")


def team_of(executable: Executable) -> GrowingTeam:
    devices = executable._local
    assert isinstance(devices, LoopbackDevices)
    return devices._team


def outputs(executable: Executable, given: list[list[np.ndarray]]) -> list[bytes]:
    return [own[0].tobytes() for own in executable.run_devices(given)]


def test_short_steps_keep_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(4, monkeypatch)
    monkeypatch.setattr(runtime.cpu.step.thread_team, "LEAST_SAVED", 1.0)
    executable = compiled(PROGRAM)
    for _ in range(3):
        executable.run_devices(tiles(executable))
    assert team_of(executable).threads == 1


def test_longer_steps_get_threads_and_keep_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(4, monkeypatch)
    monkeypatch.setattr(runtime.cpu.step.thread_team, "LEAST_SAVED", 1.0)
    executable = compiled(PROGRAM)
    given = tiles(executable)
    first = outputs(executable, given)
    monkeypatch.setattr(runtime.cpu.step.thread_team, "LEAST_SAVED", -1.0)
    monkeypatch.setattr(runtime.cpu.step.thread_team, "_CERTAIN", -1e9)
    threads = []
    for _ in range(6):
        assert outputs(executable, given) == first
        threads.append(team_of(executable).threads)
    assert threads == [1, 1, 1, 4, 4, 4]


def test_one_very_long_step_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(4, monkeypatch)
    executable = compiled(PROGRAM)
    monkeypatch.setattr(runtime.cpu.step.thread_team, "LEAST_SAVED", 1e-12)
    executable.run_devices(tiles(executable))
    assert team_of(executable).threads == 4


def test_a_step_that_calls_python_has_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(2, monkeypatch)
    assert team_of(compiled(WITH_PYTHON)).threads == 2


def test_devices_with_much_memory_have_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(2, monkeypatch)
    large = exchange_loop(100_000, entry="ROOT y = f32[100000] get-tuple-element(end), index=1")
    assert team_of(compiled(large)).threads == 2


def test_one_core_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(1, monkeypatch)
    assert team_of(compiled(PROGRAM)).most == 1
