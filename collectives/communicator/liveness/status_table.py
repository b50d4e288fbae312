"""Status table in shared memory: the state and position of each rank of a node, for the ranks that wait for it.

A row holds a note (a time and a text for the reader of an error message) and words: the position of the rank in the
program that it runs, the identity of its process, its state, the rank for which it waits, and the number of barriers of
the world that it has entered. The executor updates the position with one store per thunk. PyTorch's flight recorder
serves a similar purpose.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol
from weakref import WeakValueDictionary

from collectives.communicator.group import Array
from collectives.communicator.liveness.process_state import ProcessId

#: Size of the text of a note. The rest of a longer text is dropped.
_TEXT_BYTES = 248
_NOTE = struct.Struct(f"=d{_TEXT_BYTES}s")
#: Number of 64-bit words in a row, of which ten are in use.
_FIELD_COUNT = 16
ROW_BYTES = _NOTE.size + 8 * _FIELD_COUNT

#: Fields of a position: number of the program (0: none yet), number of steps begun, number of the present thunk in the
#: order of ``traverse``, and number of the thunk that started the last collective.
PROGRAM, STEP, THUNK, STARTED = range(4)
NO_THUNK = -1
"""Value of THUNK between steps, and of STARTED if the last note is more recent than the last collective."""

_PROCESS = slice(4, 7)
_STATE, _WAITS_FOR, _BARRIERS = range(7, 10)

NO_RANK, ALL_RANKS = -1, -2
"""Values in place of an awaited rank: the rank waits for no rank, or for all ranks."""


class RankState(IntEnum):
    """State of a rank's process."""

    RUNNING = 0
    LEFT = 1
    """The rank has ended its program and no longer communicates."""
    ENDING = 2
    """The process received SIGTERM."""
    FAILED = 3
    """The rank reports why the job ends."""


class Explains(Protocol):
    """A loaded program that can describe its thunks by number."""

    def explain(self, thunk: int) -> str:
        """Describe a thunk: its kind, its HLO instruction and the instruction's source."""
        ...

    def name_of(self, thunk: int) -> str:
        """Return the name of the HLO instruction of ``thunk``."""
        ...


def private_position() -> memoryview:
    """Return the fields of a position in private memory, which no other rank can read."""
    fields = memoryview(bytearray(8 * (STARTED + 1))).cast("q")
    fields[STARTED] = NO_THUNK
    return fields


def describe_position(fields: memoryview, program: Explains | None) -> list[str]:
    """Return a list with a text of the position ``fields`` in ``program``; an empty list if it is unknown."""
    number, step, thunk = fields[PROGRAM], fields[STEP], fields[THUNK]
    if number == 0 or step == 0:
        return []
    if thunk == NO_THUNK:
        return [f"after step {step}"]
    what = f"thunk {thunk}" if program is None else program.explain(thunk)
    return [f"in step {step} at {what}"]


def started_last(fields: memoryview, program: Explains | None) -> str | None:
    """Return a text of the collective that native code has started since the last note; None if there is none."""
    thunk = fields[STARTED]
    if fields[PROGRAM] == 0 or thunk == NO_THUNK:
        return None
    return f"last started {f'thunk {thunk}' if program is None else program.name_of(thunk)}"


class StatusTable:
    """A table with one row per rank of this node. Each row is written by its rank alone.

    Readers do not synchronize with the writer: they may see a partly written note, which is acceptable in an error
    message, but words are read and written atomically.
    """

    def __init__(self, rank: int, rows: Mapping[int, Array]) -> None:
        """Create the table of ``rank``. ``rows`` holds ROW_BYTES bytes of shared memory, initially zero, per rank."""
        self._rank = rank
        self._rows = rows
        self._own = rows[rank].data
        self._fields = {r: row.data[_NOTE.size :].cast("q") for r, row in rows.items()}
        own = self._fields[rank]
        self.position = own[: STARTED + 1]
        own[STARTED] = NO_THUNK
        for number, word in enumerate(ProcessId.own(), _PROCESS.start):
            own[number] = word
        own[_WAITS_FOR] = NO_RANK
        self._programs: WeakValueDictionary[int, Explains] = WeakValueDictionary()
        self._enrolled = 0

    # ---- this rank
    def note(self, text: str) -> None:
        """Replace this rank's note."""
        self.prepared(text)()

    def prepared(self, text: str) -> Callable[[], None]:
        """Return a function that writes the note ``text``. Repeated calls are cheap, since the text is encoded once."""
        data = text.encode()[:_TEXT_BYTES]
        row, pack, now, position = self._own, _NOTE.pack_into, time.monotonic, self.position

        def leave() -> None:
            pack(row, 0, now(), data)
            position[STARTED] = NO_THUNK

        return leave

    def register_program(self, program: Explains) -> int:
        """Return a number for a loaded program, by which peers can look it up. Only a weak reference is kept.

        The number is equal on all ranks, because all ranks load the same programs in the same order.
        """
        self._enrolled += 1
        self._programs[self._enrolled] = program
        return self._enrolled

    def waits_for(self, rank: int) -> None:
        """Record that this rank waits for ``rank``, for ALL_RANKS, or for NO_RANK."""
        self._fields[self._rank][_WAITS_FOR] = rank

    def meets_all(self) -> None:
        """Count one more barrier of the world that this rank has entered."""
        self._fields[self._rank][_BARRIERS] += 1

    def set_rank_state(self, state: RankState) -> None:
        """Record the state of this rank."""
        self._fields[self._rank][_STATE] = state

    # ---- any rank
    @property
    def ranks(self) -> Sequence[int]:
        """Return the ranks on this node."""
        return tuple(self._rows)

    def process(self, rank: int) -> ProcessId | None:
        """Return the process of ``rank``; None for a rank of another node, or one whose row is not written yet."""
        fields = self._fields.get(rank)
        return (
            ProcessId(*fields[_PROCESS]) if fields is not None and fields[_PROCESS.start] else None
        )

    def rank_state(self, rank: int) -> RankState:
        """Return the state of ``rank``; RUNNING for a rank of another node, whose state is unknown."""
        fields = self._fields.get(rank)
        return RankState(fields[_STATE]) if fields is not None else RankState.RUNNING

    def awaited_by(self, rank: int) -> list[int]:
        """Return the ranks that ``rank`` waits for; an empty list if it works, is on another node or has no row yet."""
        fields = self._fields.get(rank)
        if fields is None or not fields[_PROCESS.start] or fields[_WAITS_FOR] == NO_RANK:
            return []
        return [fields[_WAITS_FOR]] if fields[_WAITS_FOR] >= 0 else self.absent(rank)

    def absent(self, rank: int) -> list[int]:
        """Return the ranks of this node that have not entered the barrier of the world in which ``rank`` waits."""
        barrier = self._fields[rank][_BARRIERS]
        return [r for r, fields in self._fields.items() if fields[_BARRIERS] < barrier]

    def signs(self, rank: int) -> tuple[object, ...]:
        """Return values that change when ``rank`` makes progress; an empty tuple for a rank of another node.

        They are the bytes of its row and, while it waits for no rank, the processor time of its process.
        """
        fields = self._fields.get(rank)
        if fields is None:
            return ()
        process = self.process(rank)
        waits = fields[_WAITS_FOR] != NO_RANK
        computed = process.cpu_ticks() if process is not None and not waits else None
        return (bytes(self._rows[rank].data), computed)

    def is_at_work(self, rank: int) -> bool:
        """Return whether ``rank`` waits for no rank and its first thread is running or runnable."""
        fields, process = self._fields.get(rank), self.process(rank)
        if fields is None or process is None or fields[_WAITS_FOR] != NO_RANK:
            return False
        return process.wants_a_core()

    def last_position(self, rank: int) -> str:
        """Return the last note of ``rank`` with its age, and the position in its program."""
        fields = self._fields.get(rank)
        if fields is None:
            return "is on another node"
        written, data = _NOTE.unpack_from(self._rows[rank].data)
        program = self._programs.get(fields[PROGRAM])
        found = ["has not called a collective"]
        started = started_last(fields, program)
        if started is not None:
            found = [started]
        elif written:
            text = data.rstrip(b"\0").decode(errors="replace")
            found = [f"{text} (noted {time.monotonic() - written:.1f} s ago)"]
        process = self.process(rank)
        if self.rank_state(rank) is RankState.LEFT:
            found.insert(0, "has ended its program")
        elif process is not None:
            found = [*process.trouble(), *found]
        return ", ".join([*found, *describe_position(fields, program)])
