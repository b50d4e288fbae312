"""State of other processes of this machine, from /proc: whether a process is alive, stopped or computing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS, _STARTED = 0, 1, 11, 12, 19
"""Fields of /proc/PID/stat, counted from the one after the command's name."""

_STAT_BYTES = 470
"""Bytes that contain these fields even if each has 20 digits, few enough for the allocator of small Python objects."""

_READY = "R"
_STOPPED = ("T", "t")
_DEAD = ("Z", "X")


class ProcessId(NamedTuple):
    """Identity of a process, which stays unique if its process number is reused.

    ``started`` is the start time in clock ticks since the boot. ``namespace`` is the inode of the process's PID
    namespace: numbers of other namespaces cannot be looked up. Both are 0 if the system does not provide them.
    """

    pid: int
    started: int
    namespace: int

    @staticmethod
    def own() -> ProcessId:
        """Return the identity of this process."""
        fields = stat_fields(os.getpid())
        if fields is None:
            return ProcessId(os.getpid(), 0, 0)
        return ProcessId(os.getpid(), int(fields[_STARTED]), _namespace())

    @staticmethod
    def of(pid: int) -> ProcessId | None:
        """Return the identity of process ``pid`` of this PID namespace; None if there is no such process."""
        fields = stat_fields(pid)
        return ProcessId(pid, int(fields[_STARTED]), _namespace()) if fields else None

    @property
    def is_visible(self) -> bool:
        """Return whether the process is in this process's PID namespace, so that its state can be read."""
        return self.namespace != 0 and self.namespace == _namespace()

    def is_dead(self) -> bool:
        """Return whether the process has certainly ended: it is visible, and it is a zombie or no longer exists."""
        if not self.is_visible:
            return False
        fields = self._now()
        return fields is None or fields[_STATE] in _DEAD

    def is_stopped(self) -> bool:
        """Return whether the process is stopped, by a signal or a debugger; False if that is unknown."""
        fields = self._now()
        return fields is not None and fields[_STATE] in _STOPPED

    def cpu_ticks(self) -> int:
        """Return the CPU time of all threads of the process in clock ticks (usually 10 ms); 0 if it is unknown."""
        fields = self._now()
        return 0 if fields is None else int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])

    def wants_a_core(self) -> bool:
        """Return whether the first thread of the process runs or is runnable (state R in /proc/PID/stat)."""
        fields = self._now()
        return fields is not None and fields[_STATE] == _READY

    def queued_seconds(self) -> float:
        """Return the seconds for which the first thread of the process was runnable without a core; 0 if unknown."""
        try:
            content = Path(f"/proc/{self.pid}/schedstat").read_text(encoding="ascii")
        except OSError:
            return 0.0
        return int(content.split()[1]) * 1e-9

    def trouble(self) -> list[str]:
        """Return a text that says that the process is dead or stopped; an empty list if it is neither."""
        if self.is_dead():
            return [f"is dead (process {self.pid})"]
        return [f"is stopped (process {self.pid}, SIGSTOP)"] if self.is_stopped() else []

    def _now(self) -> list[str] | None:
        """Return the present stat fields of the process; None if it is not visible or no longer exists."""
        fields = stat_fields(self.pid) if self.is_visible else None
        return fields if fields is not None and int(fields[_STARTED]) == self.started else None


def children_of(pid: int) -> list[int]:
    """Return the numbers of the processes whose parent is ``pid``."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    stats = ((number, stat_fields(number)) for number in numbers)
    return [number for number, fields in stats if fields and int(fields[_PARENT]) == pid]


def stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; None if there is no such process or no /proc.

    Only the beginning of the file is read, without a file object: ranks that wait for a long time read it repeatedly,
    and a file object would allocate 8 KB each time.
    """
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(file, _STAT_BYTES)
        finally:
            os.close(file)
    except OSError:
        return None
    return data.decode("utf-8", errors="replace").rpartition(")")[2].split()


def _namespace() -> int:
    """Return the inode of this process's PID namespace; 0 if the system does not provide it."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
