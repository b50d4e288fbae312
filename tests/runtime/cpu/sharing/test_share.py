"""Shares: every piece is done once in each run, by whoever comes; helpers do come, and go when the step is over."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
import pytest

from collectives.communicator.liveness.status_table import private_position
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.native_call import NativeAction, SharedAction, native_call
from runtime.cpu.step.device_table import Table
from runtime.cpu.step.segment import Action, joined, segment_of
from runtime.cpu.step.thread_team import ThreadTeam
from runtime.cpu.step.worker import Worker
from spmd.literal import NDArray

#: Records: counter, own number. count: one more run of it. await: look for the other's first run, a while.
_IR = """
declare i32 @sched_yield()

define void @count(ptr %record) {
  %counter = load ptr, ptr %record
  %before = atomicrmw add ptr %counter, i64 1 monotonic
  ret void
}

define void @await(ptr %record) {
entry:
  %counter = load ptr, ptr %record
  %found_slot = getelementptr i64, ptr %record, i64 1
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ]
  %count = load atomic i64, ptr %counter acquire, align 8
  %come = icmp ne i64 %count, 0
  br i1 %come, label %found, label %next
next:
  %more = add i64 %looks, 1
  %patient = icmp ult i64 %more, 1000000
  br i1 %patient, label %again, label %end
again:
  %y = call i32 @sched_yield()
  br label %look
found:
  store i64 1, ptr %found_slot
  br label %end
end:
  ret void
}
"""


@cache
def code() -> NativeLibrary:
    return host_jit().compile(_IR, ("count", "await"))


def counts(counters: NDArray, number: int) -> NativeAction:
    record = np.array([counters[number:].ctypes.data], np.int64)
    return native_call(code(), "count", record, (counters,))


def team_of(actions: list[Action], helpers: int) -> ThreadTeam:
    segments = [segment_of(number, action) for number, action in enumerate(actions)]
    table = Table(joined(segments), private_position())
    team = ThreadTeam([Worker([table], lambda *_: True)], lambda *_: None, 1 + helpers)
    team.table = table  # type: ignore[attr-defined] # kept as long
    return team


@pytest.mark.parametrize("helpers", [0, 1, 3])
@pytest.mark.parametrize("pieces", [1, 2, 7, 64])
def test_every_piece_is_done_once_in_each_run(helpers: int, pieces: int) -> None:
    counters = np.zeros(2 * pieces, np.int64)
    shares: list[Action] = [
        SharedAction([counts(counters, first + n) for n in range(pieces)]) for first in (0, pieces)
    ]
    team = team_of(shares, helpers)
    for step in range(1, 301):
        team.run()
        np.testing.assert_array_equal(counters, step)


def test_helpers_take_pieces() -> None:
    """The first piece is the device's own thread's, which waits there for the last one."""
    counters = np.zeros(1, np.int64)
    record = np.array([counters.ctypes.data, 0], np.int64)
    waits = native_call(code(), "await", record, (counters,))
    team = team_of([SharedAction([waits, counts(counters, 0)])], helpers=1)
    team.run()
    assert record[1] == 1


def test_pieces_of_several_calls_are_done_in_order() -> None:
    counters = np.zeros(1, np.int64)
    record = np.array([counters.ctypes.data, 0], np.int64)
    waits = native_call(code(), "await", record, (counters,))
    piece = NativeAction([*counts(counters, 0).calls, *waits.calls])
    team_of([SharedAction([piece])], helpers=0).run()
    assert record[1] == 1


def test_a_step_that_fails_leaves_no_helper_at_work() -> None:
    counters = np.zeros(2, np.int64)

    def fails() -> None:
        raise ValueError("planted")

    others = set(threading.enumerate())
    team = team_of([SharedAction([counts(counters, 0), counts(counters, 1)]), fails], helpers=1)
    (helper,) = set(threading.enumerate()) - others
    with pytest.raises(ValueError, match="planted"):
        team.run()
    helper.join(10)
    assert not helper.is_alive()
