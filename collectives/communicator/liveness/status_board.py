"""A board in shared memory: where each rank of a node stands, for peers that wait for it in vain.

A row holds a note (when and what, for a reader) and words for programs: which process it is, whether it waits and for
whom, and its position in the program that it runs, which the executor writes with one store for each thunk.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol
from weakref import WeakValueDictionary

from collectives.communicator.liveness.process_state import ProcessId
from collectives.communicator.reduction import Array

_TEXT_BYTES = 248
_NOTE = struct.Struct(f"=d{_TEXT_BYTES}s")
_WORDS = 16
ROW_BYTES = _NOTE.size + 8 * _WORDS

#: A position's words: number of the program (0: none yet), steps begun, number of the thunk in ``walk``'s order, and of
#: the one that started a collective last.
PROGRAM, STEP, THUNK, STARTED = range(4)
NO_THUNK = -1
"""In THUNK, between steps; in STARTED, where a note says more."""

_PROCESS = slice(4, 7)
_LIFE, _WAITS_FOR, _MEETINGS = range(7, 10)

NOBODY, EVERYBODY = -1, -2
"""Instead of the rank that is waited for."""


class RankState(IntEnum):
    """State of a rank's process."""

    RUNNING = 0
    LEFT = 1
    """It has ended its program, and communicates no more."""
    ENDING = 2
    """It was told to end (SIGTERM)."""
    FAILED = 3
    """It says why the job ends."""


class Explains(Protocol):
    """A loaded program, which can say what its thunks are."""

    def explain(self, thunk: int) -> str:
        """The thunk, its HLO instruction and where that comes from."""
        ...

    def name_of(self, thunk: int) -> str:
        """Its instruction's."""
        ...


def private_position() -> memoryview:
    """A position that nobody else sees."""
    words = memoryview(bytearray(8 * (STARTED + 1))).cast("q")
    words[STARTED] = NO_THUNK
    return words


def place_of(words: memoryview, program: Explains | None) -> list[str]:
    """Describe the position ``words`` in ``program``; an empty list if it is unknown."""
    number, step, thunk = words[PROGRAM], words[STEP], words[THUNK]
    if number == 0 or step == 0:
        return []
    if thunk == NO_THUNK:
        return [f"after step {step}"]
    what = f"thunk {thunk}" if program is None else program.explain(thunk)
    return [f"in step {step} at {what}"]


def started_last(words: memoryview, program: Explains | None) -> str | None:
    """The collective that native code has started since the last note, if any."""
    thunk = words[STARTED]
    if words[PROGRAM] == 0 or thunk == NO_THUNK:
        return None
    return f"last started {f'thunk {thunk}' if program is None else program.name_of(thunk)}"


class StatusBoard:
    """One row per rank of this node, written by its rank alone.

    A reader may see half a note, which serves a message well enough; words are whole.
    """

    def __init__(self, rank: int, rows: Mapping[int, Array]) -> None:
        """``rows``: by rank, ROW_BYTES bytes of memory that the node shares; zeros at first."""
        self._rank = rank
        self._rows = rows
        self._own = rows[rank].data
        self._words = {r: row.data[_NOTE.size :].cast("q") for r, row in rows.items()}
        own = self._words[rank]
        self.position = own[: STARTED + 1]
        own[STARTED] = NO_THUNK
        for number, word in enumerate(ProcessId.own(), _PROCESS.start):
            own[number] = word
        own[_WAITS_FOR] = NOBODY
        self._programs: WeakValueDictionary[int, Explains] = WeakValueDictionary()
        self._enrolled = 0

    # ---- this rank
    def note(self, text: str) -> None:
        """Replace this rank's note."""
        self.prepared(text)()

    def prepared(self, text: str) -> Callable[[], None]:
        """A note that costs little to leave, again and again."""
        data = text.encode()[:_TEXT_BYTES]
        row, pack, now, position = self._own, _NOTE.pack_into, time.monotonic, self.position

        def leave() -> None:
            pack(row, 0, now(), data)
            position[STARTED] = NO_THUNK

        return leave

    def enroll(self, program: Explains) -> int:
        """The number of a program that is loaded; the same on all ranks, which load the same ones in one order."""
        self._enrolled += 1
        self._programs[self._enrolled] = program
        return self._enrolled

    def waits_for(self, rank: int) -> None:
        """This rank waits for ``rank``, or for NOBODY."""
        self._words[self._rank][_WAITS_FOR] = rank

    def meets_all(self) -> None:
        """This rank has come to the next meeting of the world."""
        self._words[self._rank][_MEETINGS] += 1

    def set_life(self, life: RankState) -> None:
        self._words[self._rank][_LIFE] = life

    # ---- any rank
    @property
    def ranks(self) -> Sequence[int]:
        """Those of this node."""
        return tuple(self._rows)

    def process(self, rank: int) -> ProcessId | None:
        """None for a rank of another node, and for one that has not opened its board yet."""
        words = self._words.get(rank)
        return ProcessId(*words[_PROCESS]) if words is not None and words[_PROCESS.start] else None

    def life(self, rank: int) -> RankState:
        words = self._words.get(rank)
        return RankState(words[_LIFE]) if words is not None else RankState.RUNNING

    def awaited_by(self, rank: int) -> list[int]:
        """For whom ``rank`` waits; nobody while it does something itself, is on another node, or has no board yet."""
        words = self._words.get(rank)
        if words is None or not words[_PROCESS.start] or words[_WAITS_FOR] == NOBODY:
            return []
        return [words[_WAITS_FOR]] if words[_WAITS_FOR] >= 0 else self.absent(rank)

    def absent(self, rank: int) -> list[int]:
        """The ranks of this node that have not come to the meeting of the world at which ``rank`` is."""
        meeting = self._words[rank][_MEETINGS]
        return [r for r, words in self._words.items() if words[_MEETINGS] < meeting]

    def signs(self, rank: int) -> tuple[object, ...]:
        """Return values that change when ``rank`` makes progress: its position and, while it does not wait, its
        processor time."""
        words = self._words.get(rank)
        if words is None:
            return ()
        process = self.process(rank)
        waits = words[_WAITS_FOR] != NOBODY
        computed = process.cpu_ticks() if process is not None and not waits else None
        return (bytes(self._rows[rank].data), computed)

    def is_at_work(self, rank: int) -> bool:
        """It waits for nobody, and computes or would if it had a core, which on a busy machine may take seconds."""
        words, process = self._words.get(rank), self.process(rank)
        if words is None or process is None or words[_WAITS_FOR] != NOBODY:
            return False
        return process.wants_a_core()

    def whereabouts(self, rank: int) -> str:
        """Return the last note of ``rank`` with its age, and the position in its program."""
        words = self._words.get(rank)
        if words is None:
            return "is on another node"
        written, data = _NOTE.unpack_from(self._rows[rank].data)
        program = self._programs.get(words[PROGRAM])
        found = ["has not called a collective"]
        started = started_last(words, program)
        if started is not None:
            found = [started]
        elif written:
            text = data.rstrip(b"\0").decode(errors="replace")
            found = [f"{text} (noted {time.monotonic() - written:.1f} s ago)"]
        process = self.process(rank)
        if self.life(rank) is RankState.LEFT:
            found.insert(0, "has ended its program")
        elif process is not None:
            found = [*process.trouble(), *found]
        return ", ".join([*found, *place_of(words, program)])
