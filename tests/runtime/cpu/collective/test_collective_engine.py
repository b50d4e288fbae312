"""Native actions that move bytes: every length and stride, and nothing beside what they name."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.actions.shared_actions import (
    Await,
    AwaitMessages,
    CollectiveAction,
    CollectiveProgram,
    CopyRows,
    RotateBytes,
    Signal,
    StartMessages,
    SwapRows,
)
from runtime.cpu.collective.action_records import HEADER_WORDS, LANDED, MET, UNTIMED
from runtime.cpu.collective.collective_engine import native_collective_engine

_LENGTHS = (1, 7, 8, 9, 63, 64, 65, 71, 128, 200, 256, 4099)


def run(action: CollectiveAction) -> None:
    (actions,) = native_collective_engine().load([CollectiveProgram((action,), (action,), 0)])
    assert actions.start() == RunStatus.COMPLETE


def memory(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 20_000, np.uint8)


def rows_of(array: np.ndarray, first: int, rows: int, row: int, stride: int) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(array[first:], (rows, row), (stride, 1))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("row", _LENGTHS)
def test_swap_rows(row: int, rows: int) -> None:
    one, other = memory(1), memory(2)
    stride, here, there = row + 5, 3, 17
    want_one, want_other = one.copy(), other.copy()
    rows_of(want_one, here, rows, row, stride)[:] = rows_of(other, there, rows, row, stride)
    rows_of(want_other, there, rows, row, stride)[:] = rows_of(one, here, rows, row, stride)
    run(SwapRows(one.ctypes.data + here, other.ctypes.data + there, rows, row, stride))
    assert np.array_equal(one, want_one)
    assert np.array_equal(other, want_other)


@pytest.mark.parametrize("row", _LENGTHS)
def test_copy_rows(row: int) -> None:
    source, target = memory(1), memory(2)
    want = target.copy()
    rows_of(want, 17, 3, row, row + 1)[:] = rows_of(source, 3, 3, row, row + 5)
    run(CopyRows(source.ctypes.data + 3, target.ctypes.data + 17, 3, row, row + 5, row + 1))
    assert np.array_equal(target, want)


@pytest.mark.parametrize("is_cycle", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", _LENGTHS)
def test_rotate_bytes(length: int, count: int, is_cycle: bool) -> None:
    arrays = [memory(i) for i in range(count)]
    want = [array.copy() for array in arrays]
    for i, array in enumerate(want):
        before = arrays[i - 1][7 + i - 1 :][:length] if i else arrays[-1][6 + count :][:length]
        array[7 + i :][:length] = before if i or is_cycle else 0
    places = tuple(array.ctypes.data + 7 + i for i, array in enumerate(arrays))
    run(RotateBytes(places, length, is_cycle))
    for array, right in zip(arrays, want, strict=True):
        assert np.array_equal(array, right)


def test_times_of_a_run() -> None:
    """A timed run notes when its last peer was found to have come, and when all was found done."""
    counters = np.zeros(2, np.int64)
    own, other = (counters[i:].ctypes.data for i in (0, 1))
    program = (Signal(own, 1), Await((1,), (other,), 1), Signal(own, 2), Await((1,), (other,), 2))
    (actions,) = native_collective_engine().load([CollectiveProgram(program, program, 2)])
    header = (ctypes.c_int64 * HEADER_WORDS).from_address(actions.address)
    header[UNTIMED] = 0
    look = actions.advancing(0)
    times = [time.monotonic_ns()]

    def at(signal: int) -> None:
        counters[1] = signal
        times.append(time.monotonic_ns())

    for run in range(2):
        assert actions.start() == RunStatus.BLOCKED
        assert (header[MET], header[LANDED]) == (0, 0)
        at(2 * run + 1)
        assert look() == RunStatus.BLOCKED
        times.append(header[MET])
        assert header[LANDED] == 0
        at(2 * run + 2)
        assert look() == look() == RunStatus.COMPLETE
        times.append(header[LANDED])
        assert look() == RunStatus.COMPLETE
        assert header[LANDED] == times[-1]
    times.append(time.monotonic_ns())
    assert times == sorted(times)


def test_runs_are_timed_only_on_request() -> None:
    """Native code does not read the clock for a program whose times nobody asked for."""
    counter = np.zeros(1, np.int64)
    program = (Signal(counter.ctypes.data, 1),)
    (actions,) = native_collective_engine().load([CollectiveProgram(program, program, 1)])
    header = (ctypes.c_int64 * HEADER_WORDS).from_address(actions.address)
    assert actions.start() == RunStatus.COMPLETE
    assert header[LANDED] == header[UNTIMED] == 1


@dataclass
class Answers:
    """A message library (Messages) whose calls answer as they are told: starts, and tests that are complete if well."""

    starts: Iterator[int]
    tests: Iterator[int]
    count: int = 1
    requests: int = 0
    statuses: int = 0
    words: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    def __post_init__(self) -> None:
        address, number = ctypes.c_void_p, ctypes.c_int
        self._start = ctypes.CFUNCTYPE(number, number, address)(lambda *_: next(self.starts))
        self._test = ctypes.CFUNCTYPE(number, number, address, address, address)(self._answer)
        self.start_all, self.test_all = (
            ctypes.cast(one, address).value or 0 for one in (self._start, self._test)
        )
        self.error = self.words.ctypes.data

    def _answer(self, _: int, __: int, flag: int, ___: int) -> int:
        ctypes.c_int.from_address(flag).value = 1
        return next(self.tests)

    def late(self) -> list[int]:
        return []

    def failure(self) -> str:
        return f"code {self.words[0]}"


@pytest.mark.parametrize(
    ("starts", "tests"), [([0], [7, 0]), ([7, 0], [0])], ids=["awaiting", "starting"]
)
def test_messages_that_have_failed_stay_so(starts: list[int], tests: list[int]) -> None:
    """A look at what is in flight drops its outcome: a library that answers well from then on must not hide it."""
    answers = Answers(iter(starts), iter(tests))
    program = (StartMessages(answers), AwaitMessages(answers))
    (actions,) = native_collective_engine().load([CollectiveProgram(program, program, 1)])
    assert actions.start() == RunStatus.MESSAGES_FAILED
    assert actions.advancing(0)() == RunStatus.MESSAGES_FAILED
    assert actions.failure() == "code 7"
    assert actions.start() == RunStatus.MISUSED
