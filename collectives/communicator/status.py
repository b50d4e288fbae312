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

from collectives.communicator.processes import ProcessId
from collectives.communicator.reduction import Array

_TEXT_BYTES = 248
_NOTE = struct.Struct(f"=d{_TEXT_BYTES}s")
_WORDS = 16
ROW_BYTES = _NOTE.size + 8 * _WORDS

#: A position's words: number of the program (0: none yet), steps begun, number of the thunk in ``walk``'s order.
PROGRAM, STEP, THUNK = range(3)
NO_THUNK = -1
"""In THUNK, between steps."""

_PROCESS = slice(3, 6)
_LIFE, _WAITS_FOR, _MEETINGS = range(6, 9)

NOBODY, EVERYBODY = -1, -2
"""Instead of the rank that is waited for."""


class Life(IntEnum):
    """How far a rank's process has come."""

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


def private_position() -> memoryview:
    """A position that nobody else sees."""
    return memoryview(bytearray(8 * (THUNK + 1))).cast("q")


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
        self.position = own[: THUNK + 1]
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
        row, pack, now = self._own, _NOTE.pack_into, time.monotonic
        return lambda: pack(row, 0, now(), data)

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

    def set_life(self, life: Life) -> None:
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

    def life(self, rank: int) -> Life:
        words = self._words.get(rank)
        return Life(words[_LIFE]) if words is not None else Life.RUNNING

    def awaited_by(self, rank: int) -> list[int]:
        """For whom ``rank`` waits; nobody while it does something itself, or is on another node."""
        words = self._words.get(rank)
        if words is None or words[_WAITS_FOR] == NOBODY:
            return []
        return [words[_WAITS_FOR]] if words[_WAITS_FOR] >= 0 else self.absent(rank)

    def absent(self, rank: int) -> list[int]:
        """The ranks of this node that have not come to the meeting of the world at which ``rank`` is."""
        meeting = self._words[rank][_MEETINGS]
        return [r for r, words in self._words.items() if words[_MEETINGS] < meeting]

    def signs(self, rank: int) -> tuple[object, ...]:
        """What changes when ``rank`` gets on: where it is, and while it waits for nobody, the time it has computed."""
        words = self._words.get(rank)
        if words is None:
            return ()
        process = self.process(rank)
        waits = words[_WAITS_FOR] != NOBODY
        computed = process.cpu_ticks() if process is not None and not waits else None
        return (bytes(self._rows[rank].data), computed)

    def whereabouts(self, rank: int) -> str:
        """What ``rank`` noted last and how long ago, and where it is in its program."""
        words = self._words.get(rank)
        if words is None:
            return "is on another node"
        written, data = _NOTE.unpack_from(self._rows[rank].data)
        found = ["has not called a collective"]
        if written:
            text = data.rstrip(b"\0").decode(errors="replace")
            found = [f"{text} (noted {time.monotonic() - written:.1f} s ago)"]
        process = self.process(rank)
        if self.life(rank) is Life.LEFT:
            found.insert(0, "has ended its program")
        elif process is not None:
            found = [*process.trouble(), *found]
        return ", ".join([*found, *self._place(words)])

    def _place(self, words: memoryview) -> list[str]:
        program, step, thunk = words[PROGRAM], words[STEP], words[THUNK]
        if program == 0 or step == 0:
            return []
        if thunk == NO_THUNK:
            return [f"after step {step}"]
        explains = self._programs.get(program)
        what = f"thunk {thunk}" if explains is None else explains.explain(thunk)
        return [f"in step {step} at {what}"]
