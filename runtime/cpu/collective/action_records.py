"""Records of the actions of collectives, in a table that native code reads (shared_memory_ir.py).

The first word is the address of the action's function. Strides are in bytes.
"""

from __future__ import annotations

from runtime.program.argument_record import Address, Record, Word, record, word_count, word_index
from spmd.lazy_dataclass import dataclass


@record
class HeaderRecord(Record):
    """State of a run, in which ``next`` is the number of the next action, of ``count`` actions.

    ``signals`` is the number of signals of a run, and ``before`` that of all runs before this one. ``this_actions`` and
    ``next_actions`` are the tables of this run and of the next one, which alternate if slots do. ``landed`` and ``met``
    are times (shared_memory_ir.py), which are noted only if ``untimed`` is 0: reading the clock takes longer than a
    small collective.
    """

    next: Word
    count: Word
    before: Word
    signals: Word
    this_actions: Address
    next_actions: Address
    landed: Word
    met: Word
    untimed: Word


@record
class SignalRecord(Record):
    """Signal to other ranks by the rank's own ``counter``. ``number`` is the number of the signal within the run."""

    function: Address
    counter: Address
    number: Word


@record
class AwaitRecord(Record):
    """Wait until each of ``members`` counters, whose addresses ``counters`` lists, has reached signal ``number``."""

    function: Address
    counters: Address
    members: Word
    number: Word


@record
class MessagesRecord(Record):
    """Start of messages, and the common beginning of the records about messages.

    ``library`` is the address of the library's function, ``requests`` that of ``count`` requests, and ``error`` that of
    the word that stores an error.
    """

    function: Address
    library: Address
    count: Word
    requests: Address
    error: Address


@record
class AwaitMessagesRecord(MessagesRecord):
    """Wait for messages. ``statuses`` is a buffer for the statuses that the library writes."""

    statuses: Address


@record
class CopyRowsRecord(Record):
    """Copy of ``rows`` rows of ``row_bytes`` bytes."""

    function: Address
    source: Address
    target: Address
    rows: Word
    row_bytes: Word
    source_stride: Word
    target_stride: Word


@record
class FillZeroRecord(Record):
    """Setting of ``num_bytes`` bytes at ``target`` to 0."""

    function: Address
    target: Address
    num_bytes: Word


@record
class SwapRowsRecord(Record):
    """Exchange of rows between two buffers."""

    function: Address
    one: Address
    other: Address
    rows: Word
    row_bytes: Word
    stride: Word


@record
class RotateRecord(Record):
    """In-place permute, which moves ``num_bytes`` bytes from each address to the next.

    If it ``is_cycle``, it also moves bytes from the last address to the first.
    """

    function: Address
    addresses: Address
    count: Word
    num_bytes: Word
    is_cycle: Word


@record
class MoveRowsRecord(Record):
    """Copy of one sender's rows in a ragged all-to-all.

    Three tables of ``entries`` row numbers, from the sender, give the starts in the source, the amounts, and the starts
    in the target.
    """

    function: Address
    source: Address
    target: Address
    starts: Address
    amounts: Address
    target_starts: Address
    entries: Word
    row_bytes: Word
    source_rows: Word
    target_rows: Word


@record
class ReduceRowsRecord(Record):
    """Reduction of two or more sources into targets, by the addresses of lists of their addresses.

    No array is empty.
    """

    function: Address
    sources: Address
    source_count: Word
    targets: Address
    target_count: Word
    rows: Word
    elements: Word
    source_stride: Word
    target_stride: Word


HEADER_WORDS = word_count(HeaderRecord)
#: Numbers of the header's words that are times.
LANDED, MET = (word_index(HeaderRecord, name) for name in ("landed", "met"))
#: Number of the header's word that is 0 if the times are noted.
UNTIMED = word_index(HeaderRecord, "untimed")
#: Number of words of each record in a table, which is that of the largest record.
RECORD_WORDS = word_count(MoveRowsRecord)

# ---- functions
INDEX_TYPES = {"int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}
"""LLVM's type for each NumPy type that a table of offsets may have."""

ACTION_FUNCTIONS = (
    "spmd_signal",
    "spmd_await",
    "spmd_copy_rows",
    "spmd_fill_zero",
)
ENTRY_POINTS = ("spmd_start", "spmd_advance")

#: Names of the functions of the actions that start messages and await them (messages_ir.py).
START_MESSAGES, AWAIT_MESSAGES = "spmd_start_messages", "spmd_await_messages"
IN_PLACE_FUNCTIONS = ("spmd_swap_rows", "spmd_rotate_bytes")

# ---- variants of reductions
#: Largest number of sources that one loop reduces at once.
MOST_AT_ONCE = 8


@dataclass(frozen=True)
class Streams:
    """Numbers of sources and targets for which code is specialized."""

    sources: int
    targets: int


@dataclass(frozen=True)
class Prefixes:
    """Arrays with partial reductions in the accumulator's type.

    These are the first source if ``comes``, and all targets if ``goes``.
    """

    comes: bool = False
    goes: bool = False

    @property
    def output(self) -> str:
        return "wide" if self.goes else "stored"

    def inputs(self, count: int) -> list[str]:
        return ["wide" if self.comes else "stored", *["stored"] * (count - 1)]


def streams_of_code(sources: int, targets: int) -> Streams | None:
    """Return the numbers for which code is specialized, or None if there are more than ``MOST_AT_ONCE`` sources."""
    return Streams(sources, targets) if sources <= MOST_AT_ONCE else None
