"""The double does as late as CUDA may, and finds what nothing orders."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from loopback_ranks import run_ranks

from collectives.communicator.loopback.communicator import LoopbackCommunicator
from runtime.gpu.command import GpuProgram
from runtime.gpu.commands.collective import StreamCollective
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from tests.collectives.communicator.nccl.nccl_double import World
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.doubles.host_streams import HostEvent, HostStream
from tests.runtime.gpu.doubles.races import Bytes, RaceError
from tests.runtime.gpu.test_ranks import on_rank
from tests.runtime.programs import ASYNC_COLLECTIVES, compiled, random_inputs

FOUR = np.array([1, 2, 3, 4], np.uint8)


def test_nothing_is_done_before_the_host_waits() -> None:
    driver = HostDriver()
    stream, block, back = driver.stream(), driver.allocate(4), np.zeros(4, np.uint8)
    driver.upload(block.address, FOUR, stream)
    driver.download(back, block.address, stream)
    assert not back.any()
    stream.synchronize()
    np.testing.assert_array_equal(back, FOUR)


def test_an_event_brings_the_other_stream_so_far() -> None:
    driver = HostDriver()
    first, second = driver.stream(), driver.stream()
    block, back, event = driver.allocate(4), np.zeros(4, np.uint8), HostEvent()
    driver.upload(block.address, FOUR, first)
    first.record(event)
    second.wait_event(event)
    driver.download(back, block.address, second)
    second.synchronize()
    np.testing.assert_array_equal(back, FOUR)


@pytest.mark.parametrize("verb", ["reads", "writes"])
def test_streams_that_nothing_orders(verb: str) -> None:
    driver = HostDriver()
    first, second, block = driver.stream(), driver.stream(), driver.allocate(8)
    driver.upload(block.address, FOUR, first)
    driver.upload(block.address + 4, FOUR, second)  # other bytes
    again = {
        "reads": partial(driver.download, np.zeros(1, np.uint8), block.address + 3, second),
        "writes": partial(driver.upload, block.address + 3, FOUR[:1], second),
    }[verb]
    with pytest.raises(RaceError, match=f"{verb} what upload on stream 1 has written"):
        again()


def test_the_host_orders_what_it_has_waited_for() -> None:
    driver = HostDriver()
    first, second, block = driver.stream(), driver.stream(), driver.allocate(4)
    driver.upload(block.address, FOUR, first)
    first.synchronize()
    driver.upload(block.address, FOUR, second)


def test_rows_between_rows_do_not_meet() -> None:
    even, odd = Bytes(0, 2, (4,), (4,)), Bytes(2, 2, (4,), (4,))
    assert not even.meets(odd)
    assert even.meets(Bytes(5, 1))
    assert not even.meets(Bytes(6, 2))
    assert Bytes(12, 1, (4,), (-4,)).meets(Bytes(0, 1))


def test_graphs_are_done_when_they_are_launched() -> None:
    driver = HostDriver()
    stream, block, back = driver.stream(), driver.allocate(4), np.zeros(4, np.uint8)
    stream.begin_capture()
    driver.upload(block.address, FOUR, stream)
    graph = stream.end_capture()
    driver.download(back, block.address, stream)
    stream.synchronize()
    assert not back.any()
    graph.launch(stream)
    driver.download(back, block.address, stream)
    stream.synchronize()
    np.testing.assert_array_equal(back, FOUR)


def test_a_graph_joins_its_streams() -> None:
    driver = HostDriver()
    first, second, event, block = driver.stream(), driver.stream(), HostEvent(), driver.allocate(4)
    first.begin_capture()
    first.record(event)
    second.wait_event(event)
    driver.upload(block.address, FOUR, second)
    with pytest.raises(AssertionError, match="ends before its work on stream 2"):
        first.end_capture()


def test_a_graph_waits_for_nothing_outside() -> None:
    driver = HostDriver()
    first, second, event = driver.stream(), driver.stream(), HostEvent()
    second.record(event)
    first.begin_capture()
    with pytest.raises(AssertionError, match="outside of it"):
        first.wait_event(event)


def test_the_host_does_not_wait_in_a_capture() -> None:
    driver = HostDriver()
    stream = driver.stream()
    stream.begin_capture()
    with pytest.raises(AssertionError, match="while a graph is captured"):
        stream.synchronize()


def _steps(count: int, *, nccl: bool) -> list[list[np.ndarray]]:
    """Each rank's outputs of the last step."""
    saved = save_bytes(compiled(ASYNC_COLLECTIVES, keep_order=True))
    size = load_bytes(saved).num_devices
    world = World(size) if nccl else None

    def program(host: LoopbackCommunicator) -> list[np.ndarray]:
        with on_rank(load_bytes(saved), host, HostDriver(), world) as executable:
            inputs = random_inputs(executable.module, host.rank)
            for _ in range(count):
                (outputs,) = executable.run_devices([inputs])
        return outputs

    return run_ranks(size, program, 60)


@pytest.mark.parametrize("steps", [1, 2])  # one by one, captured
@pytest.mark.parametrize("lost", ["the start's wait", "the done's wait"])
def test_an_engine_without_one_of_its_waits_is_found(
    lost: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lost == "the done's wait":
        monkeypatch.setattr(StreamCollective, "finish", lambda _: None)
    else:
        wait_event = HostStream.wait_event

        def only_compute(self: HostStream, event: HostEvent) -> None:
            if "urgent" not in self.name:
                wait_event(self, event)

        monkeypatch.setattr(HostStream, "wait_event", only_compute)
    with pytest.raises((RaceError, AssertionError)):
        _steps(steps, nccl=True)


def test_a_host_that_does_not_wait_has_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    want = _steps(1, nccl=False)
    wait = GpuProgram.wait

    def impatient(self: GpuProgram, stream: HostStream) -> None:
        if "urgent" not in stream.name:
            wait(self, stream)

    monkeypatch.setattr(GpuProgram, "wait", impatient)
    got = _steps(1, nccl=False)
    pairs = [pair for a, b in zip(got, want, strict=True) for pair in zip(a, b, strict=True)]
    assert any(not np.array_equal(x, y) for x, y in pairs)
