"""Recorder of thunk timestamps on a GPU. It uses timed CUDA events and yields the same records as the CPU recorder.

A timestamp is an event recorded after a thunk's work. Its time is known when the step is complete. Times are converted
to the host's clock by the first event of the step, for which the host waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import field

from runtime.device_program import RETAINED_STEPS
from runtime.gpu.command import Action, Command
from runtime.gpu.commands.collective import BlockingCommand, DoneCommand, StartCommand
from runtime.gpu.driver import GpuDriver, GpuEvent, GpuStream
from runtime.program.thunks import Thunk, traverse
from runtime.timeline.events import Stream
from runtime.timeline.timestamps import Moment, RecordedStep, Timestamp, mark_of, moment_of
from spmd.lazy_dataclass import dataclass


@dataclass
class _Taken:
    """Timestamps of one step. ``pending`` has (mark, event) for each timestamp whose time is not known yet."""

    number: int
    is_blocking: bool
    timestamps: list[Timestamp] = field(default_factory=list)
    pending: list[tuple[int, GpuEvent]] = field(default_factory=list)


class GpuRecorder:
    """Recorder of the timestamps of the last ``RETAINED_STEPS`` steps. All steps share the events."""

    def __init__(self, root: Thunk, driver: GpuDriver, streams: dict[Stream, GpuStream]) -> None:
        self._driver = driver
        self._compute, self._communication = streams[Stream.COMPUTE], streams[Stream.COMMUNICATION]
        self._numbers = {id(thunk): number for number, thunk in enumerate(traverse(root))}
        self._steps: deque[_Taken] = deque(maxlen=RETAINED_STEPS)
        self._events: list[GpuEvent] = []
        self._used = 0
        self._begin = driver.event(timed=True)
        self._began = 0
        #: Events recorded after collectives on the communication stream, by the name of the collective's start.
        self._over: dict[str, GpuEvent] = {}

    @property
    def steps(self) -> list[RecordedStep]:
        """Recorded steps, oldest first."""
        return [RecordedStep(s.number, s.is_blocking, tuple(s.timestamps)) for s in self._steps]

    def begin_step(self, number: int, is_blocking: bool) -> None:
        """Begin step ``number``. is_blocking: the step waits for each collective at its start."""
        self._steps.append(_Taken(number, is_blocking))
        self._used = 0
        self._compute.record(self._begin)
        self._begin.synchronize()
        self._began = time.perf_counter_ns()

    def end_step(self) -> None:
        """Convert the events of the current step to timestamps. The device must have completed the step."""
        step, latest = self._steps[-1], -1
        for mark, event in reversed(step.pending):
            at = self._began + self._driver.nanoseconds(self._begin, event)
            # The event after a collective may be later than the end of the compute stream's wait for
            # the collective; a collective must not land after its done.
            if moment_of(mark)[1] is Moment.LANDED:
                at = min(at, latest)
            latest = at
            step.timestamps.append((mark, at))
        step.timestamps.reverse()
        step.pending.clear()

    def around(self, step: Command, action: Action) -> Action:
        """Return an action that runs ``action``, the bound command ``step``, and records its timestamps."""
        if isinstance(step, StartCommand):
            return self._start(step, action)
        if isinstance(step, BlockingCommand):
            return self._blocking(step, action)
        if isinstance(step, DoneCommand):
            return self._done(step, action)
        ends = self._stamping(step.thunk, Moment.ENDS)
        begins = self._stamping(step.thunk, Moment.BEGINS) if step.thunk.is_composite else None

        def run() -> None:
            if begins is not None:
                begins()
            action()
            ends()

        return run

    def _start(self, step: StartCommand, action: Action) -> Action:
        ends = self._stamping(step.thunk, Moment.ENDS)

        def run() -> None:
            action()
            if not step.through_host:
                self._over[step.name] = self._recorded(self._communication)
            ends()

        return run

    def _blocking(self, step: BlockingCommand, action: Action) -> Action:
        waited = self._stamping(step.thunk, Moment.WAITED)

        def run() -> None:
            action()
            if self._steps[-1].is_blocking:
                self._landed(step.thunk, step.name)
                waited()

        return run

    def _done(self, step: DoneCommand, action: Action) -> Action:
        ends = self._stamping(step.thunk, Moment.ENDS)

        def run() -> None:
            action()
            if not self._steps[-1].is_blocking:
                self._landed(step.thunk, step.start)
            ends()

        return run

    def _landed(self, thunk: Thunk, start: str) -> None:
        """Record the completion of the collective whose start has the name ``start``.

        A collective through the host has no event of its own: the present end of the communication stream is used.
        """
        over = self._over.pop(start, None) or self._recorded(self._communication)
        self._record(thunk, Moment.LANDED, over)

    def _stamping(self, thunk: Thunk, moment: Moment) -> Callable[[], None]:
        return lambda: self._record(thunk, moment, self._recorded(self._compute))

    def _record(self, thunk: Thunk, moment: Moment, event: GpuEvent) -> None:
        mark = mark_of(self._numbers[id(thunk)], moment)
        self._steps[-1].pending.append((mark, event))

    def _recorded(self, stream: GpuStream) -> GpuEvent:
        if self._used == len(self._events):
            self._events.append(self._driver.event(timed=True))
        event = self._events[self._used]
        self._used += 1
        stream.record(event)
        return event
