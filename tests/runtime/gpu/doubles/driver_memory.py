"""The memory and the streams of a driver's double, as collectives among GPUs and NCCL's double use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.collectives.communicator.nccl.host_device import HostMemory, memory_at
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.doubles.host_streams import HostEvent, Op
from tests.runtime.gpu.doubles.races import Bytes


@dataclass
class DriverMemory:
    """A DeviceMemory."""

    driver: HostDriver

    def use(self) -> None:
        pass

    def allocate(self, num_bytes: int) -> HostMemory:
        return HostMemory(self.driver.allocate(num_bytes).memory)

    def event(self) -> DriverEvent:
        return DriverEvent(self.driver)

    def is_capturing(self, stream: int) -> bool:
        capture = self.driver.streams.capture
        return capture is not None and self.driver.streams.by_handle[stream] in capture.streams

    def put(
        self,
        stream: int,
        work: Callable[[], None],
        reads: Sequence[tuple[int, int]] = (),
        writes: Sequence[tuple[int, int]] = (),
    ) -> None:
        places = [
            tuple(Bytes(address, 1, (size,), (1,)) for address, size in side)
            for side in (reads, writes)
        ]
        self.driver.launched.append("a collective")
        self.driver.streams.by_handle[stream].put(Op("a collective", work, places[0], places[1]))

    def copy(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        self.copy_rows(target, num_bytes, source, num_bytes, num_bytes, 1, stream)

    def copy_rows(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        row_bytes: int,
        rows: int,
        stream: int,
    ) -> None:
        def work() -> None:
            for row in range(rows):
                to = memory_at(target + row * target_pitch, row_bytes)
                to[:] = memory_at(source + row * source_pitch, row_bytes)

        self.put(
            stream,
            work,
            [(source + row * source_pitch, row_bytes) for row in range(rows)],
            [(target + row * target_pitch, row_bytes) for row in range(rows)],
        )

    def zero(self, target: int, num_bytes: int, stream: int) -> None:
        self.put(stream, lambda: memory_at(target, num_bytes).fill(0), [], [(target, num_bytes)])


class DriverEvent:
    """Work is done as late as it may be: an event comes to pass when it is asked for again and again."""

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self._event: HostEvent | None = None
        self._asked = 0

    def record(self, stream: int) -> None:
        self._event, self._asked = HostEvent(), 0
        self._driver.streams.by_handle[stream].record(self._event)

    def hold_up(self, stream: int) -> None:
        if self._event is not None:
            self._driver.streams.by_handle[stream].wait_event(self._event)

    def is_done(self) -> bool:
        self._asked += 1
        if self._event is not None and self._event.at is None and self._asked > 3:
            self._event.synchronize()
        return self._event is None or self._event.at is not None
