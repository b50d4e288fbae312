"""Compute: the sequential execution of a device's kernels, at a speed that drops while collectives use processors."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import field

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """A kernel that was executed, with its start and end in seconds."""

    name: str
    start: float
    end: float


@dataclass(eq=False, slots=True)
class Compute:
    """Kernels that a device has to run.

    todo: name and seconds at full speed of each remaining kernel.
    left: the sum of those seconds at time ``since``.
    speed: present speed, from 0 to 1.
    version: number of times that the end has changed; it tells outdated events from valid ones.
    begun: when the first kernel of ``todo`` began.
    """

    todo: deque[tuple[str, float]] = field(default_factory=deque)
    left: float = 0.0
    speed: float = 1.0
    since: float = 0.0
    version: int = 0
    begun: float = 0.0

    def begin(self, work: list[tuple[str, float]], now: float) -> None:
        """Begin ``work``. All earlier work must be done."""
        self.todo.extend(work)
        self.left = sum(seconds for _, seconds in work)
        self.since = self.begun = now
        self.version += 1

    def end(self) -> float:
        """Return when all work is done at the present speed."""
        if not self.left:
            return self.since
        return self.since + self.left / self.speed if self.speed > 0.0 else math.inf

    def left_at(self, now: float) -> float:
        """Return the seconds of work at full speed that are left at time ``now``."""
        return max(self.left - self.speed * (now - self.since), 0.0)

    def set_speed(self, speed: float, now: float) -> list[Done]:
        """Change the speed from now on. Returns the work done by now."""
        done = self._proceed(now)
        self.speed = speed
        self.version += 1
        return done

    def finish(self, now: float) -> list[Done]:
        """Complete all work. Returns the work done since the last call; ``now`` must be ``end()``."""
        done = self._proceed(now)
        while self.todo:  # kernels with a rest due to rounding errors
            name, _ = self.todo.popleft()
            done.append(Done(name, self.begun, now))
            self.begun = now
        self.left = 0.0
        return done

    def _proceed(self, now: float) -> list[Done]:
        """Advance to time ``now`` at the present speed. Returns the kernels that were completed."""
        done = []
        can_do = self.speed * (now - self.since)
        self.left = self.left_at(now)
        at = self.since
        while self.todo and self.todo[0][1] <= can_do:
            name, seconds = self.todo.popleft()
            can_do -= seconds
            at += seconds / self.speed if self.speed > 0.0 else 0.0
            done.append(Done(name, self.begun, at))
            self.begun = at
        if self.todo:
            name, seconds = self.todo.popleft()
            self.todo.appendleft((name, seconds - can_do))
        self.since = now
        return done
