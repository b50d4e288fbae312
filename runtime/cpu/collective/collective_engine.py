"""Engine that runs the actions of collectives (collectives/communicator/actions/shared_actions.py) as native code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from collectives.communicator.actions.shared_actions import (
    Await,
    AwaitMessages,
    CollectiveAction,
    CollectiveProgram,
    CopyRows,
    FillZero,
    Messages,
    MoveRows,
    ReduceRows,
    RotateBytes,
    Signal,
    StartMessages,
    SwapRows,
)
from collectives.communicator.group import can_reduce
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.cpu.collective.action_records import (
    ACTION_FUNCTIONS,
    AWAIT_MESSAGES,
    ENTRY_POINTS,
    IN_PLACE_FUNCTIONS,
    INDEX_TYPES,
    RECORD_WORDS,
    START_MESSAGES,
    AwaitMessagesRecord,
    AwaitRecord,
    CopyRowsRecord,
    FillZeroRecord,
    HeaderRecord,
    MessagesRecord,
    MoveRowsRecord,
    Prefixes,
    ReduceRowsRecord,
    RotateRecord,
    SignalRecord,
    Streams,
    SwapRowsRecord,
    streams_of_code,
)
from runtime.program.argument_record import Record
from spmd.device import ReductionKind
from spmd.errors import UnsupportedError

if TYPE_CHECKING:
    from collectives.communicator.actions.engine import BarrierRecord
    from runtime.cpu.step.barrier_engine import NativeBarrier

Dtype: TypeAlias = np.dtype[Any]
Int64Array: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_ReductionKey: TypeAlias = tuple[Dtype, ReductionKind, Streams | None, Prefixes]

_FOLDER = "runtime.cpu.collective"


def _compiled(name: str, exports: Sequence[str], passes: Passes) -> NativeLibrary:
    """Return the library of the IR that the function ``name`` of the file of the same name writes."""
    return host_jit().compile(DeferredIr(f"{_FOLDER}.{name}", name), exports, passes=passes)


class NativeCollectiveEngine:
    """CollectiveEngine of native code, which is compiled when a program first needs it.

    A lock lets only one thread at a time begin a compilation.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reductions: dict[_ReductionKey, NativeLibrary] = {}
        self._moves: dict[str, NativeLibrary] = {}

    @cached_property
    def _code(self) -> NativeLibrary:
        names = (*ENTRY_POINTS, *ACTION_FUNCTIONS)
        return _compiled("shared_memory_ir", names, Passes.TIDY)

    @cached_property
    def _in_place(self) -> NativeLibrary:
        return _compiled("in_place_ir", IN_PLACE_FUNCTIONS, Passes.TIDY)

    @cached_property
    def _messages(self) -> NativeLibrary:
        return _compiled("messages_ir", (START_MESSAGES, AWAIT_MESSAGES), Passes.CALL)

    @cached_property
    def start(self) -> Any:
        """Return the function that starts a run, given the address of a header."""
        return self._code.function("spmd_start", ctypes.c_int64, ctypes.c_void_p)

    @cached_property
    def advance(self) -> Any:
        """Return the function that advances a run, given the address of a header and a number of polls."""
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        return self._code.function("spmd_advance", word, pointer, word)

    def begin(self) -> None:
        """Start to compile the code that every program with collectives needs."""
        with self._lock:
            _ = self._code

    def can_reduce(self, dtype: Dtype, reduction: ReductionKind) -> bool:
        return can_reduce(dtype, reduction)

    def load(self, programs: Sequence[CollectiveProgram]) -> list[NativeCollectiveProgram]:
        with self._lock:
            for program in programs:
                for action in program.actions:
                    self._code_of(action)
        return [NativeCollectiveProgram(self, program) for program in programs]

    def node_barrier(self, addresses: BarrierRecord) -> NativeBarrier:
        from runtime.cpu.step.barrier_engine import NativeBarrier, barrier_library

        with self._lock:
            return NativeBarrier(addresses, barrier_library())

    def function_of(self, action: CollectiveAction) -> int:
        """Return the address of the native function that runs ``action``, and wait until it is compiled."""
        with self._lock:
            code = self._code_of(action)
        return code.address(_FUNCTIONS[type(action)])

    def _code_of(self, action: CollectiveAction) -> NativeLibrary:
        """Return the library of the function that runs ``action``; its compilation begins with this call."""
        if isinstance(action, ReduceRows):
            return self._reduction(action)
        if isinstance(action, MoveRows):
            return self._move(action.index_dtype.name)
        if isinstance(action, (StartMessages, AwaitMessages)):
            return self._messages
        if isinstance(action, (SwapRows, RotateBytes)):
            return self._in_place
        return self._code

    def _move(self, dtype: str) -> NativeLibrary:
        if dtype not in INDEX_TYPES:
            raise UnsupportedError(f"a ragged all-to-all with offsets of type {dtype}")
        if dtype not in self._moves:
            ir = DeferredIr(f"{_FOLDER}.shared_memory_ir", "move_rows_ir", (_MOVE, dtype))
            self._moves[dtype] = host_jit().compile(ir, (_MOVE,), passes=Passes.TIDY)
        return self._moves[dtype]

    def _reduction(self, action: ReduceRows) -> NativeLibrary:
        streams = streams_of_code(len(action.sources), len(action.targets))
        key = (
            action.dtype,
            action.reduction,
            streams,
            Prefixes(action.from_prefix, action.to_prefix),
        )
        if key not in self._reductions:
            ir = DeferredIr(f"{_FOLDER}.reduce_rows_ir", "reduce_rows_ir", (_REDUCE, *key))
            self._reductions[key] = host_jit().compile(ir, (_REDUCE,))
        return self._reductions[key]


_MOVE, _REDUCE = "spmd_move_rows", "spmd_reduce_rows"
_FUNCTIONS: dict[type[CollectiveAction], str] = {
    Signal: "spmd_signal",
    Await: "spmd_await",
    StartMessages: START_MESSAGES,
    AwaitMessages: AWAIT_MESSAGES,
    CopyRows: "spmd_copy_rows",
    SwapRows: "spmd_swap_rows",
    RotateBytes: "spmd_rotate_bytes",
    FillZero: "spmd_fill_zero",
    MoveRows: _MOVE,
    ReduceRows: _REDUCE,
}


@cache
def native_collective_engine() -> NativeCollectiveEngine:
    """Return the process's engine, which is made at the first use."""
    return NativeCollectiveEngine()


class NativeCollectiveProgram:
    """CollectiveProgram as a header and two tables of records (see shared_memory_ir).

    The code is compiled in the background. The records get the addresses of their functions at the first use of
    ``start`` or ``address``.
    """

    def __init__(self, engine: NativeCollectiveEngine, program: CollectiveProgram) -> None:
        assert len(program.actions) == len(program.alternate)
        self._program = program
        self._lists: list[Int64Array] = []
        table = self._table(program.actions)
        is_one = program.alternate is program.actions
        self._tables = [table, table if is_one else self._table(program.alternate)]
        count = len(program.actions)
        this, following = (table.ctypes.data for table in self._tables)
        signals = program.signals
        self._header = HeaderRecord(
            count, count, -signals, signals, this, following, 0, 0, untimed=1
        ).to_array()
        self._argument = ctypes.c_void_p(self._header.ctypes.data)
        self._engine = engine

    @cached_property
    def start(self) -> Callable[[], int]:
        """Return the callable that starts a run.

        Like that of ``advancing``, it enters native code without Python in between.
        """
        self._link()
        return partial(self._engine.start, self._argument)

    @cached_property
    def address(self) -> int:
        """Return the address of the header."""
        self._link()
        return int(self._header.ctypes.data)

    def _link(self) -> None:
        """Wait until the actions' functions are compiled, and write their addresses into both tables."""
        functions = [self._engine.function_of(action) for action in self._program.actions]
        for table in self._tables:
            table[: len(functions), 0] = functions

    @property
    def run(self) -> int:
        return int(self._header[2])

    def advancing(self, spins: int) -> Callable[[], int]:
        return partial(self._engine.advance, self._argument, ctypes.c_int64(spins))

    def missing(self) -> list[int]:
        position, count, before = (int(word) for word in self._header[:3])
        # Both tables have the same actions, for other slots.
        action = self._program.actions[position] if position < count else None
        if isinstance(action, AwaitMessages):
            return action.messages.late()
        if not isinstance(action, Await):
            return []
        return [
            rank
            for rank, counter in zip(action.ranks, action.counters, strict=True)
            if ctypes.c_int64.from_address(counter).value < before + action.number
        ]

    def failure(self) -> str:
        action = self._program.actions[int(self._header[0])]
        assert isinstance(action, (StartMessages, AwaitMessages)), "nothing else fails so"
        return action.messages.failure()

    def _table(self, actions: Sequence[CollectiveAction]) -> Int64Array:
        table = np.zeros((max(len(actions), 1), RECORD_WORDS), np.int64)
        for record, action in zip(table, actions, strict=False):
            values = self._record_of(action).to_list()
            record[: len(values)] = values
        return table

    def _record_of(self, action: CollectiveAction) -> Record:
        """Return the record of ``action``, without the address of its function."""
        if isinstance(action, Signal):
            return SignalRecord(0, action.counter, action.number)
        if isinstance(action, Await):
            return AwaitRecord(0, self._list(action.counters), len(action.counters), action.number)
        if isinstance(action, StartMessages):
            function = action.messages.start_all
            return MessagesRecord(0, function, *_requests(action.messages))
        if isinstance(action, AwaitMessages):
            function, statuses = action.messages.test_all, action.messages.statuses
            return AwaitMessagesRecord(0, function, *_requests(action.messages), statuses)
        if isinstance(action, CopyRows):
            shape = (action.rows, action.row_bytes, action.source_stride, action.target_stride)
            return CopyRowsRecord(0, action.source, action.target, *shape)
        if isinstance(action, SwapRows):
            return SwapRowsRecord(
                0, action.one, action.other, action.rows, action.row_bytes, action.stride
            )
        if isinstance(action, RotateBytes):
            addresses, count = self._list(action.addresses), len(action.addresses)
            return RotateRecord(0, addresses, count, action.num_bytes, int(action.is_cycle))
        if isinstance(action, FillZero):
            return FillZeroRecord(0, action.target, action.num_bytes)
        if isinstance(action, ReduceRows):
            elements = action.row_elements * (2 if action.dtype.kind == "c" else 1)
            sources, targets = self._list(action.sources), self._list(action.targets)
            lists = (sources, len(action.sources), targets, len(action.targets))
            strides = (action.source_stride, action.target_stride)
            return ReduceRowsRecord(0, *lists, action.rows, elements, *strides)
        sizes = (action.entries, action.row_bytes, action.source_rows, action.target_rows)
        return MoveRowsRecord(0, action.source, action.target, *action.tables, *sizes)

    def _list(self, addresses: Sequence[int]) -> int:
        """Store ``addresses`` as a list in memory that the program owns, and return the list's address."""
        self._lists.append(np.array(addresses, np.int64))
        return int(self._lists[-1].ctypes.data)


def _requests(messages: Messages) -> tuple[int, int, int]:
    return messages.count, messages.requests, messages.error
