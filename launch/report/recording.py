"""Recording of a run's devices, gathered on rank 0: their timestamps, clocks, and processor times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

import numpy as np

from launch.ranks.rank_executable import RankExecutable
from launch.report.clock import ONE_CLOCK, ClockLine, ClockOffset, clock_offsets
from runtime.device_program import RETAINED_STEPS
from runtime.executable import Executable
from runtime.timeline.timestamps import RecordedStep
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class RecordedDevice:
    """Recording of one device. ``processor``: by step, nanoseconds that its thread had a core; empty if unknown."""

    steps: tuple[RecordedStep, ...]
    clock: ClockLine = ONE_CLOCK
    processor: dict[int, int] = field(default_factory=dict)


class Recording:
    """Recording of an executable that records timestamps. Every rank makes one.

    The devices keep their last few steps only: ``keep`` takes them over, so that there can be more. ``step`` does it
    in time, where the devices have not run before. after: the number of the last step that is not wanted.
    """

    def __init__(self, executable: Executable, after: int = 0) -> None:
        self._executable = executable
        self._after = after
        self._steps: list[dict[int, RecordedStep]] = [{} for _ in executable.devices]
        self._processor: dict[int, int] = {}
        self._begun = 0  # number of steps begun
        self._before = _clocks(executable)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measure a step's processor time, if this thread runs the step and nothing else."""
        before = time.thread_time_ns()
        yield
        spent = time.thread_time_ns() - before
        self._begun += 1
        if isinstance(self._executable, RankExecutable) and self._begun > self._after:
            self._processor[self._begun] = spent
        if self._begun % RETAINED_STEPS == 0:
            self.keep()

    def keep(self) -> None:
        for own, steps in zip(self._steps, self._executable.recorded_steps(), strict=True):
            own.update((step.number, step) for step in steps if step.number > self._after)

    def gather(self) -> list[RecordedDevice] | None:
        """Return the records of all devices on rank 0 and None elsewhere. Every rank calls it."""
        self.keep()
        own = [tuple(steps[number] for number in sorted(steps)) for steps in self._steps]
        executable = self._executable
        if not isinstance(executable, RankExecutable):
            return [RecordedDevice(steps) for steps in own]
        after = _clocks(executable)
        gathered = executable.communicator.gather_bytes(_pack(own[0], self._processor))
        if gathered is None:
            return None
        lines = [ClockLine(*both) for both in zip(self._before, after, strict=True)]
        return [
            RecordedDevice(steps, clock, processor)
            for (steps, processor), clock in zip(map(_unpack, gathered), lines, strict=True)
        ]


def _clocks(executable: Executable) -> list[ClockOffset]:
    if not isinstance(executable, RankExecutable):
        return []
    return clock_offsets(executable.communicator)


def _pack(steps: Sequence[RecordedStep], processor: dict[int, int]) -> bytes:
    """Serialize as integers: of each step its number, whether it is blocking, and its number of timestamps; then the
    timestamps.
    """
    headers = [(step.number, int(step.is_blocking), len(step.timestamps)) for step in steps]
    flat = [value for step in steps for stamp in step.timestamps for value in stamp]
    head = json.dumps({"steps": headers, "processor": sorted(processor.items())})
    return head.encode() + b"\n" + np.array(flat, np.int64).tobytes()


def _unpack(data: bytes) -> tuple[tuple[RecordedStep, ...], dict[int, int]]:
    head, _, body = data.partition(b"\n")
    timestamps = np.frombuffer(body, np.int64).reshape(-1, 2).tolist()
    steps, start = [], 0
    header = json.loads(head)
    for number, is_blocking, length in header["steps"]:
        own = tuple((mark, at) for mark, at in timestamps[start : start + length])
        steps.append(RecordedStep(number, bool(is_blocking), own))
        start += length
    return tuple(steps), dict(header["processor"])
