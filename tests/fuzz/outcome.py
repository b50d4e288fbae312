"""The outcome of a fuzzer's input: a module or one SpmdError, within two seconds and one gibibyte; else a finding."""

from __future__ import annotations

import gc
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from spmd.errors import HloParseError, SpmdError
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.text.sources.load import parse_bytes
from spmd.verifier import verify

MAX_SECONDS = 2.0
MAX_BYTES = 1 << 30
_HIGH_WATER = re.compile(r"VmHWM:\s+(\d+) kB")


@dataclass(frozen=True)
class Outcome:
    """``end``: "module", the name of the SpmdError, or "finding: ..."; CPU seconds; bytes above the start at the peak."""

    end: str
    seconds: float
    peak: int

    @property
    def is_finding(self) -> bool:
        return self.end.startswith("finding")


class TooSlow(BaseException):
    """The input took more CPU time than it may."""


def read_verify_print(data: bytes) -> str:
    """Name of what the input came to; anything but an SpmdError passes through."""
    try:
        module = parse_bytes(data)
        verify(module)
        printed = print_module(module)
    except SpmdError as error:
        str(error).encode("utf-8")  # a message can always be written
        return "HloParseError" if isinstance(error, HloParseError) else type(error).__name__
    if print_module(parse_module(printed)) != printed:
        return "finding: printing and reading again changes the text"
    return "module"


def judge(data: bytes) -> Outcome:
    """Run one input and measure it (Linux: the peak is read from /proc).

    Garbage collections in between traverse what the input made, not what else the process holds, which may be millions
    of objects.
    """
    gc.freeze()
    before = _reset_peak()
    start = time.process_time()
    try:
        with _cpu_limit(MAX_SECONDS):
            end = read_verify_print(data)
    except TooSlow:
        end = f"finding: more than {MAX_SECONDS} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the fuzzer looks for
        end = f"finding: {type(error).__name__}: {str(error)[:200]} {_place(error)}"
    seconds = time.process_time() - start
    gc.unfreeze()
    peak = max(0, _peak() - before)
    if peak > MAX_BYTES and not end.startswith("finding"):
        end = f"finding: {peak} bytes"
    return Outcome(end, seconds, peak)


def _place(error: BaseException) -> str:
    """Innermost place in the project's code."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "/spmd/" in file:
            place = f"spmd/{file.rsplit('/spmd/', 1)[1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise TooSlow

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _reset_peak() -> int:
    """Begin a new high-water mark of resident memory; returns where it begins."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    found = _HIGH_WATER.search(Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
