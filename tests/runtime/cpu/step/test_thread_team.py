"""Tests of devices that share threads: right results however few threads there are, and ends of waits without hope."""

from __future__ import annotations

import _thread
import gc
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import spmd
from runtime.cpu.loopback import LoopbackDevices
from runtime.cpu.step.segment import SegmentRow
from runtime.cpu.step.worker import Worker, WorkerStop, WorkerWord, team_code
from runtime.executable import Executable
from spmd.errors import CollectiveTimeoutError
from tests.runtime.programs import CARRIED_BY_PYTHON, compiled, exchange_loop, module_of

#: A loop with kernels in Python (map) beside native ones.
PROGRAM = exchange_loop(
    8,
    between="""z = f32[8] map(far), dimensions={0}, to_apply=minus
  back = f32[8] map(z), dimensions={0}, to_apply=minus""",
    received="back",
    entry="ROOT y = f32[8] get-tuple-element(end), index=1",
)


def tiles(executable: Executable) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    (shape,) = executable.program.parameters
    draw = rng.standard_normal((executable.num_devices, *shape.dims))
    return [[tile.astype(shape.element_type.numpy)] for tile in draw]


def on_cores(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))


@pytest.mark.parametrize("cores", [1, 2, 3, 4])
def test_results_do_not_depend_on_the_number_of_threads(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cores(cores, monkeypatch)
    executable = compiled(PROGRAM)
    given = tiles(executable)
    x = np.concatenate([own[0][None] for own in given])
    for _ in range(5):
        groups = np.repeat(x.reshape(2, 2, 8).sum(1), 2, 0)
        x = (groups + np.roll(x, 1, axis=0)) * np.float32(0.3125)
    for _ in range(3):
        found = np.stack([own[0] for own in executable.run_devices(given)])
        np.testing.assert_allclose(found, x, rtol=1e-5)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_collectives_that_python_carries_do_not_hold_up_their_thread(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cores(cores, monkeypatch)
    executable = compiled(CARRIED_BY_PYTHON)
    given = tiles(executable)
    y = [2 * own[0] for own in given]
    for _ in range(2):
        found = executable.run_devices(given)
        for device, peer in enumerate((3, 2, 1, 0)):
            np.testing.assert_allclose(
                found[device][0], y[device] * y[peer] + given[device][0], rtol=1e-5
            )


def loaded(timeout_seconds: float = 60.0) -> tuple[LoopbackDevices, Callable[[], object]]:
    """Return devices, and a function that runs one step on them."""
    executable = compiled(PROGRAM)
    executable.timeout_seconds = timeout_seconds
    given = tiles(executable)
    devices = executable._local
    assert isinstance(devices, LoopbackDevices)
    return devices, lambda: executable.run_devices(given)


def plant(devices: LoopbackDevices, rank: int, action: Callable[[], None]) -> None:
    """Put ``action`` in the place of the device's first row that needs Python."""
    table = devices.devices[rank].table
    row = next(n for n, row in enumerate(table.rows) if callable(row.target))
    planted = SegmentRow.python(table.rows[row].number, action)
    rows = list(table.rows)
    rows[row] = planted
    table.rows = tuple(rows)


@pytest.mark.parametrize("rank", [0, 3])
def test_an_error_on_any_thread_is_raised_as_it_is(rank: int) -> None:
    def fail() -> None:
        raise ValueError("planted")

    devices, run = loaded()
    plant(devices, rank, fail)
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"^planted$"):
        run()
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(("rank", "named"), [(0, "[01]"), (3, "3")])
def test_a_device_that_is_late_is_named(rank: int, named: str) -> None:
    """The error may name another device that the late one holds up, since they share a thread."""
    devices, run = loaded(timeout_seconds=0.3)
    plant(devices, rank, lambda: time.sleep(1.5))
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("the one thread is late itself")
    with pytest.raises(CollectiveTimeoutError) as caught:
        run()
    message = str(caught.value)
    assert "within 0.3 s: missing {" in message
    where = rf"rank {named} last started (start|far), in step 1 at thunk "
    assert re.search(where, message)


def test_a_device_that_ended_is_named_at_once() -> None:
    devices, run = loaded()
    table = devices.devices[3].table
    table._view[0] = 0  # has no rows
    begin = time.monotonic()
    with pytest.raises(CollectiveTimeoutError, match=r"missing \{3\} \(rank 3 ended its program\)"):
        run()
    assert time.monotonic() - begin < 10


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handle interrupts as in a terminal.

    A process that a shell starts in the background ignores interrupts, and so does Python in it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_wait() -> None:
    devices, run = loaded()
    plant(devices, 3, lambda: time.sleep(1.0))
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run()
    timer.join()


ENDLESS = """HloModule m
condition {
  s = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  end = s32[] constant(2147483647)
  ROOT more = pred[] compare(n, end), direction=LT
}
body {
  s = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] tanh(x)
  ROOT t = (s32[], f32[8]) tuple(next, y)
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[8] parameter(0)
  s = (s32[], f32[8]) tuple(zero, x)
  ROOT w = (s32[], f32[8]) while(s), condition=condition, body=body
}
"""


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_loop_of_native_rows() -> None:
    executable = spmd.compile(spmd.parse(ENDLESS), 1)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        executable.run(np.ones(8, np.float32))
    timer.join()
    assert time.monotonic() - begin < 10


def test_threads_end_with_their_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cores(2, monkeypatch)
    before = set(threading.enumerate())
    devices, run = loaded()
    run()
    started = set(threading.enumerate()) - before
    assert started
    del devices, run
    gc.collect()
    deadline = time.monotonic() + 10
    while any(thread.is_alive() for thread in started) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(thread.is_alive() for thread in started)


def test_a_worker_on_an_earlier_ones_core_moves() -> None:
    """The worker moves if there is another core; otherwise the two take turns from then on."""
    cores = os.sched_getaffinity(os.getpid())
    taken = min(cores)
    earlier, worker = (Worker((), lambda *_: True) for _ in range(2))
    addresses = np.array([earlier.address, worker.address], np.int64)
    earlier[WorkerWord.CORE] = taken
    worker[WorkerWord.WORKERS], worker[WorkerWord.EARLIER] = addresses.ctypes.data, 1
    worker[WorkerWord.ASKED] = 1
    found = set[int]()

    def serve() -> None:
        os.sched_setaffinity(0, {taken})
        assert team_code().serve(worker.address, 0) == WorkerStop.RETIRED
        found.update(os.sched_getaffinity(0))

    thread = threading.Thread(target=serve)
    thread.start()
    while worker[WorkerWord.DONE] != 1:
        time.sleep(1e-3)
    team_code().retire(worker.address)
    thread.join()
    assert found == ((cores - {taken}) or cores)
    assert worker[WorkerWord.EARLIER] == (len(cores) > 1)
    assert len(cores) == 1 or worker[WorkerWord.CORE] in found


def test_the_program_is_what_it_says() -> None:
    """The program's loop runs in native code except for the maps."""
    executable = compiled(PROGRAM)
    assert module_of(PROGRAM).entry is not None
    devices = executable._local
    assert isinstance(devices, LoopbackDevices)
    names = {row.within[0] for row in devices.devices[0].table.rows if callable(row.target)}
    assert names <= {"z in body", "back in body"}
