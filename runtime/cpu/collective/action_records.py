"""Records of the actions of collectives, in a table of native code (shared_memory_ir.py), as their functions read them.

The first word is the address of the action's function. Strides are in bytes.
"""

from __future__ import annotations

from runtime.codegen.record import Address, Record, Word, record, word_count, word_index
from spmd.lazy_dataclass import dataclass


@record
class HeaderRecord(Record):
    """State of a run. ``next``: the action that runs next, of ``count``.

    before: signals given in runs before this one; signals: those of a run. this_actions, next_actions: of this run and
    the next one (two tables alternate where slots do). landed, met: times, see shared_memory_ir.py.
    """

    next: Word
    count: Word
    before: Word
    signals: Word
    this_actions: Address
    next_actions: Address
    landed: Word
    met: Word


@record
class SignalRecord(Record):
    """A rank's own counter, and the number of the signal within the run."""

    function: Address
    counter: Address
    number: Word


@record
class AwaitRecord(Record):
    """Addresses of counters, their number, and the signal that each must have reached."""

    function: Address
    counters: Address
    members: Word
    number: Word


@record
class MessagesRecord(Record):
    """Beginning of both records about messages: the library's function, its requests, and the word for an error."""

    function: Address
    library: Address
    count: Word
    requests: Address
    error: Address


@record
class StartMessagesRecord(MessagesRecord):
    """Start of messages. ``sent``: counters of bytes and messages to other nodes, to which these amounts are added."""

    sent: Address
    sent_bytes: Word
    sent_messages: Word


@record
class AwaitMessagesRecord(MessagesRecord):
    """Wait for messages. ``statuses``: buffer for the library's statuses."""

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
    """Bytes to set to 0."""

    function: Address
    target: Address
    num_bytes: Word


@record
class SwapRowsRecord(Record):
    """Two buffers that exchange rows."""

    function: Address
    one: Address
    other: Address
    rows: Word
    row_bytes: Word
    stride: Word


@record
class RotateRecord(Record):
    """In-place permute of ``num_bytes`` bytes from each address to the next; ``is_cycle``: last to first, too."""

    function: Address
    addresses: Address
    count: Word
    num_bytes: Word
    is_cycle: Word


@record
class MoveRowsRecord(Record):
    """Copy of one sender's rows (ragged all-to-all).

    Tables of ``entries`` row numbers from the sender: starts in the source, amounts, starts in the target.
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
    """Lists of addresses of two or more sources and of targets. No array is empty."""

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
#: Words of the header that are times.
LANDED, MET = (word_index(HeaderRecord, name) for name in ("landed", "met"))
#: Words of a record in a table: as many as the largest one has.
RECORD_WORDS = word_count(MoveRowsRecord)

# ---- functions
INDEX_TYPES = {"int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}
"""Integer types of tables of offsets, as LLVM's."""

ACTION_FUNCTIONS = (
    "spmd_signal",
    "spmd_await",
    "spmd_copy_rows",
    "spmd_fill_zero",
)
ENTRY_POINTS = ("spmd_start", "spmd_advance")

#: Functions of the actions that start messages and await them (messages_ir.py).
START_MESSAGES, AWAIT_MESSAGES = "spmd_start_messages", "spmd_await_messages"
IN_PLACE_FUNCTIONS = ("spmd_swap_rows", "spmd_rotate_bytes")

# ---- variants of reductions
#: Sources up to which they are reduced at once.
MOST_AT_ONCE = 8


@dataclass(frozen=True)
class Streams:
    """Numbers of sources and targets."""

    sources: int
    targets: int


@dataclass(frozen=True)
class Prefixes:
    """Arrays in the accumulator's type: the first source if ``comes``, the targets if ``goes``."""

    comes: bool = False
    goes: bool = False

    @property
    def output(self) -> str:
        return "wide" if self.goes else "stored"

    def inputs(self, count: int) -> list[str]:
        return ["wide" if self.comes else "stored", *["stored"] * (count - 1)]


def streams_of_code(sources: int, targets: int) -> Streams | None:
    """Return the numbers for which code is specialized; None if there are more than ``MOST_AT_ONCE`` sources."""
    return Streams(sources, targets) if sources <= MOST_AT_ONCE else None
