"""Devices of one process on one GPU: calls that CUDA refuses beside a capture wait until it is over."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from runtime.gpu.captures import CaptureLock
from runtime.gpu.driver import Allocator
from runtime.gpu.engine import GpuEngine
from runtime.gpu.options import GpuOptions
from tests.runtime.gpu.doubles.engines import ptx_of_all
from tests.runtime.gpu.doubles.host_driver import HostBlock, HostDriver
from tests.runtime.gpu.doubles.host_streams import HostGpu, HostStream
from tests.runtime.programs import compiled, random_inputs

HELD = """HloModule held, num_partitions=2
ENTRY main {
  x = f32[16,16] parameter(0)
  y = f32[16,16] sine(x)
  z = f32[16,16] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT w = f32[16,16] cosine(z)
}
"""


class Meeting(HostDriver):
    """Device 0 captures until device 1 has allocated, or has had 0.3 s for it; device 1 allocates once 0 captures."""

    def __init__(self, number: int, gpu: HostGpu, turns: Turns) -> None:
        super().__init__(gpu=gpu)
        self.number, self.turns = number, turns

    def allocate(self, num_bytes: int, allocator: Allocator | None = None) -> HostBlock:
        if not self.turns.are_taken:
            return super().allocate(num_bytes, allocator)
        if self.number == 1:
            assert self.turns.captures.wait(20)
        block = super().allocate(num_bytes, allocator)
        if self.number == 1:
            self.turns.has_allocated.set()
        return block

    def stream(self, *, urgent: bool = False) -> HostStream:
        made = super().stream(urgent=urgent)
        if self.number == 0:
            begin = made.begin_capture

            def begin_and_wait() -> None:
                begin()
                self.turns.captures.set()
                self.turns.has_allocated.wait(0.3)

            made.begin_capture = begin_and_wait  # type: ignore[method-assign]
        return made


class Turns:
    def __init__(self) -> None:
        self.are_taken = False
        self.captures, self.has_allocated = threading.Event(), threading.Event()


def test_an_output_that_is_held_over_the_step_that_captures() -> None:
    gpu, turns = HostGpu(), Turns()
    executable = compiled(HELD)
    executable.engine = GpuEngine(
        lambda number: Meeting(number, gpu, turns), lambda _: ptx_of_all, GpuOptions()
    )
    inputs = [random_inputs(executable.module, device) for device in range(2)]
    wanted = executable.run_devices(inputs)
    executable.load_devices()
    loaded = executable._loaded
    assert loaded is not None
    held = [device.outputs for device in loaded.devices]  # which the second step writes over
    turns.are_taken = True
    executable.run_devices(inputs)
    assert turns.captures.is_set()
    assert turns.has_allocated.is_set()
    for (array,), (want,) in zip(held, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(array.data), want)


def test_waiting_for_the_device_is_refused_while_any_thread_captures() -> None:
    gpu = HostGpu()
    first, second = HostDriver(gpu=gpu), HostDriver(gpu=gpu)
    stream = first.stream()
    stream.begin_capture()  # without the lock
    with pytest.raises(AssertionError, match="while a graph is captured by MainThread"):
        gpu.synchronize()
    with pytest.raises(AssertionError, match="allocating while a graph is captured"):
        second.allocate(4)
    stream.end_capture()
    gpu.synchronize()
    second.allocate(4)


class Memory:
    """Says when it is freed."""

    def __init__(self, freed: list[str]) -> None:
        self.freed = freed

    def __del__(self) -> None:
        self.freed.append(threading.current_thread().name)


def test_memory_is_freed_when_no_thread_captures() -> None:
    lock, freed = CaptureLock(), list[str]()
    lock.free(Memory(freed))
    assert freed == ["MainThread"]
    with lock:
        lock.free(Memory(freed))  # in this thread's own capture
        other = threading.Thread(target=lambda: lock.free(Memory(freed)), name="other")
        other.start()
        other.join(20)  # which does not wait for the lock
        assert freed == ["MainThread"]
    assert len(freed) == 3


def test_a_capture_waits_for_a_call_and_a_call_for_a_capture() -> None:
    lock, order = CaptureLock(), list[str]()

    def call() -> None:
        with lock:
            order.append("call")

    with lock, lock:
        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(0.05)
        order.append("capture")
    thread.join(20)
    assert order == ["capture", "call"]
