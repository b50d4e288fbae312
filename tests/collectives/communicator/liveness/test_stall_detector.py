"""Tests of whom a rank waits for and for how long: boards in plain memory, processes that are stopped and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from collectives.communicator.liveness.process_state import ProcessId, children_of
from collectives.communicator.liveness.stall_detector import StallDetector
from collectives.communicator.liveness.status_table import (
    _PROCESS,
    ALL_RANKS,
    NO_THUNK,
    PROGRAM,
    ROW_BYTES,
    STEP,
    THUNK,
    RankState,
    StatusTable,
)

TIMEOUT = 0.4


def boards(size: int) -> list[StatusTable]:
    """Every rank's end of one board."""
    rows = {rank: np.zeros(ROW_BYTES, np.uint8) for rank in range(size)}
    return [StatusTable(rank, rows) for rank in range(size)]


def seconds_of(vigil: StallDetector, limit: float = 3.0) -> float:
    """Return the seconds after which the detector gives up, or ``limit`` where it does not."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        if not vigil.poll():
            return time.monotonic() - begin
        time.sleep(0.01)
    return limit


class Program:
    def explain(self, thunk: int) -> str:
        return f"thunk {thunk}, dot.3"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, that computes nothing."""
    with subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)")) as process:
        yield process
        process.kill()


def set_process(board: StatusTable, pid: int) -> None:
    process = ProcessId.of(pid)
    assert process is not None
    for word, value in enumerate(process, _PROCESS.start):
        board._fields[board._rank][word] = value


def test_a_rank_without_signs_of_life_is_lost_after_the_timeout(
    sleeper: subprocess.Popen[bytes],
) -> None:
    me, other = boards(2)
    set_process(other, sleeper.pid)
    time.sleep(0.2)
    vigil = StallDetector(me, lambda: [1], TIMEOUT, [1])
    assert TIMEOUT <= seconds_of(vigil) < TIMEOUT + 1.0
    assert vigil.culprits == (1,)
    assert vigil.gone == ()


def test_a_rank_that_computes_is_not_lost() -> None:
    """It is this process that computes, as rank 1."""
    me, _ = boards(2)
    vigil = StallDetector(me, lambda: [1], TIMEOUT, [1])
    begin = time.monotonic()
    while time.monotonic() - begin < 4 * TIMEOUT:
        assert vigil.poll()


def test_a_rank_that_lacks_a_core_is_not_lost() -> None:
    """It comes after another process on its core, and computes next to nothing."""
    loop = "import os; os.sched_setaffinity(0, {%d}); %sprint(flush=True)\nwhile True: pass"
    core = min(os.sched_getaffinity(0))
    idle = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); "
    programs = (loop % (core, ""), loop % (core, idle))
    with contextlib.ExitStack() as stack:
        for program in programs:
            started = subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE)
            stack.callback(started.wait)
            stack.callback(started.kill)
            assert started.stdout is not None
            with started.stdout as line:
                line.readline()
        me, other = boards(2)
        set_process(other, started.pid)
        assert (
            seconds_of(StallDetector(me, lambda: [1], TIMEOUT / 4, [1]), 4 * TIMEOUT) == 4 * TIMEOUT
        )


def test_a_rank_without_a_board_waits_for_nobody() -> None:
    rows = {rank: np.zeros(ROW_BYTES, np.uint8) for rank in range(3)}
    board = StatusTable(2, rows)
    assert board.awaited_by(1) == []
    assert not board.is_at_work(1)


def test_a_rank_that_gets_on_is_not_lost(sleeper: subprocess.Popen[bytes]) -> None:
    """It waits for its disk, say: no time on the processor, but thunk after thunk."""
    me, other = boards(2)
    set_process(other, sleeper.pid)
    vigil = StallDetector(me, lambda: [1], TIMEOUT, [1])
    begin = time.monotonic()
    while time.monotonic() - begin < 4 * TIMEOUT:
        other.position[THUNK] += 1
        assert vigil.poll()
        time.sleep(0.02)
    assert TIMEOUT / 2 <= seconds_of(vigil) < TIMEOUT + 1.0


def test_the_stopped_rank_at_the_end_of_the_chain_is_the_culprit(
    sleeper: subprocess.Popen[bytes],
) -> None:
    board = boards(4)
    board[1].waits_for(2)
    board[2].waits_for(3)
    set_process(board[3], sleeper.pid)
    sleeper.send_signal(signal.SIGSTOP)
    vigil = StallDetector(board[0], lambda: [1], TIMEOUT, [1, 2, 3])
    assert seconds_of(vigil) < TIMEOUT + 1.0
    assert vigil.late == (1,)
    assert vigil.culprits == (3,)
    assert "is stopped" in board[0].last_position(3)


def test_ranks_that_wait_for_each_other_are_lost_together() -> None:
    board = boards(3)
    board[1].waits_for(2)
    board[2].waits_for(1)
    vigil = StallDetector(board[0], lambda: [1], TIMEOUT, [1, 2])
    assert seconds_of(vigil) < TIMEOUT + 1.0
    assert vigil.culprits == (1, 2)


def test_a_rank_that_ended_its_program_never_comes() -> None:
    me, other = boards(2)
    other.set_rank_state(RankState.LEFT)
    vigil = StallDetector(me, lambda: [1], 60.0, [1])
    assert seconds_of(vigil) < 3.0
    assert vigil.gone == (1,)
    assert me.last_position(1).startswith("has ended its program")


def test_a_rank_that_came_and_then_left_is_not_gone() -> None:
    """Its message is under way."""
    me, other = boards(2)
    other.set_rank_state(RankState.LEFT)
    assert seconds_of(StallDetector(me, list, 60.0, [1]), 2.0) == 2.0


def test_a_dead_rank_is_found(sleeper: subprocess.Popen[bytes]) -> None:
    me, other = boards(2)
    set_process(other, sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    vigil = StallDetector(me, lambda: [1], 60.0, [1])
    assert seconds_of(vigil, 8.0) < 6.0
    assert vigil.gone == (1,)
    assert "is dead" in me.last_position(1)


def test_who_is_absent_from_a_meeting_of_all() -> None:
    board = boards(3)
    board[0].meets_all()
    board[2].meets_all()
    assert board[0].absent(0) == [1]
    board[2].waits_for(ALL_RANKS)
    assert board[0].awaited_by(2) == [1]


def test_a_position_in_words() -> None:
    me, other = boards(2)
    program = Program()
    number = other.register_program(program), me.register_program(program)
    assert number == (1, 1)
    assert "step" not in me.last_position(1)
    other.position[PROGRAM], other.position[STEP], other.position[THUNK] = 1, 12, 7
    assert me.last_position(1).endswith("in step 12 at thunk 7, dot.3")
    other.position[THUNK] = NO_THUNK
    assert me.last_position(1).endswith("after step 12")
    other.position[THUNK] = 7
    del program
    assert me.last_position(1).endswith("in step 12 at thunk 7")


def test_a_process_number_used_again_is_another_process(
    sleeper: subprocess.Popen[bytes],
) -> None:
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    assert not process.is_dead()
    assert process._replace(started=process.started - 1).is_dead()
    assert sleeper.pid in children_of(os.getpid())
    assert not process._replace(namespace=1).is_dead()  # nothing is known of it


def test_a_short_wait_asks_for_nobody() -> None:
    """A rank that is late by some milliseconds has mostly just lost its core."""
    me, _ = boards(2)
    asked = []
    vigil = StallDetector(me, lambda: asked.append(0) or [1], 10 * TIMEOUT, [1])
    assert vigil.poll()
    assert not asked
    time.sleep(0.05)
    assert vigil.poll()
    assert asked
