"""Engine that runs the steps of collectives (collectives/communicator/steps/shared_steps.py) as native code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from collectives.communicator.group import can_reduce
from collectives.communicator.steps.shared_steps import (
    Await,
    AwaitMessages,
    CollectiveProgram,
    CopyRows,
    FillZero,
    Messages,
    MoveRows,
    ReduceRows,
    RotateBytes,
    Signal,
    StartMessages,
    Step,
    SwapRows,
)
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.codegen.record import Record
from runtime.cpu.collective.step_records import (
    AWAIT_MESSAGES,
    ENTRY_POINTS,
    IN_PLACE_FUNCTIONS,
    INDEX_TYPES,
    RECORD_WORDS,
    START_MESSAGES,
    STEP_FUNCTIONS,
    AwaitMessagesRecord,
    AwaitRecord,
    CopyRowsRecord,
    FillZeroRecord,
    HeaderRecord,
    MoveRowsRecord,
    Prefixes,
    ReduceRowsRecord,
    RotateRecord,
    SignalRecord,
    StartMessagesRecord,
    Streams,
    SwapRowsRecord,
    streams_of_code,
)
from spmd.device import ReductionKind
from spmd.errors import UnsupportedError

if TYPE_CHECKING:
    from collectives.communicator.steps.engine import BarrierRecord
    from runtime.cpu.step.barrier_engine import NativeBarrier

Dtype: TypeAlias = np.dtype[Any]
Int64Array: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_ReductionKey: TypeAlias = tuple[Dtype, ReductionKind, Streams | None, Prefixes]

_FOLDER = "runtime.cpu.collective"


def _compiled(name: str, exports: Sequence[str], passes: Passes) -> NativeLibrary:
    """Return the code of the IR that function ``name`` of the file of this name writes."""
    return host_jit().compile(DeferredIr(f"{_FOLDER}.{name}", name), exports, passes=passes)


class NativeCollectiveEngine:
    """CollectiveEngine of native code, which is compiled when a program first needs it, by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reductions: dict[_ReductionKey, NativeLibrary] = {}
        self._moves: dict[str, NativeLibrary] = {}

    @cached_property
    def _code(self) -> NativeLibrary:
        names = (*ENTRY_POINTS, *STEP_FUNCTIONS)
        return _compiled("shared_memory_ir", names, Passes.CALL)

    @cached_property
    def _in_place(self) -> NativeLibrary:
        return _compiled("in_place_ir", IN_PLACE_FUNCTIONS, Passes.TIDY)

    @cached_property
    def _messages(self) -> NativeLibrary:
        return _compiled("messages_ir", (START_MESSAGES, AWAIT_MESSAGES), Passes.CALL)

    @cached_property
    def _start(self) -> Any:
        return self._code.function("spmd_start", ctypes.c_int64, ctypes.c_void_p)

    @cached_property
    def _advance(self) -> Any:
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        return self._code.function("spmd_advance", word, pointer, word)

    def begin(self) -> None:
        """Start compiling the code that every program with collectives needs."""
        with self._lock:
            _ = self._code

    def can_reduce(self, dtype: Dtype, reduction: ReductionKind) -> bool:
        return can_reduce(dtype, reduction)

    def load(self, programs: Sequence[CollectiveProgram]) -> list[LoadedCollective]:
        with self._lock:
            for program in programs:
                for step in program.steps:
                    self._code_of(step)
        return [LoadedCollective(self, program) for program in programs]

    def node_barrier(self, addresses: BarrierRecord) -> NativeBarrier:
        from runtime.cpu.step.barrier_engine import NativeBarrier, barrier_library

        with self._lock:
            return NativeBarrier(addresses, barrier_library())

    def start_of(self, header: Int64Array) -> Callable[[], int]:
        start: Callable[[], int] = partial(self._start, ctypes.c_void_p(header.ctypes.data))
        return start

    def advancing(self, header: Int64Array, spins: int) -> Callable[[], int]:
        address, spin_limit = ctypes.c_void_p(header.ctypes.data), ctypes.c_int64(spins)
        advance: Callable[[], int] = partial(self._advance, address, spin_limit)
        return advance

    def function_of(self, step: Step) -> int:
        """Return the address of the native function that runs ``step``; waits until it is compiled."""
        with self._lock:
            code = self._code_of(step)
        return code.address(_FUNCTIONS[type(step)])

    def _code_of(self, step: Step) -> NativeLibrary:
        """Return the code of ``step``; its compilation begins with this call."""
        if isinstance(step, ReduceRows):
            return self._reduction(step)
        if isinstance(step, MoveRows):
            return self._move(step.index_dtype.name)
        if isinstance(step, (StartMessages, AwaitMessages)):
            return self._messages
        if isinstance(step, (SwapRows, RotateBytes)):
            return self._in_place
        return self._code

    def _move(self, dtype: str) -> NativeLibrary:
        if dtype not in INDEX_TYPES:
            raise UnsupportedError(f"a ragged all-to-all with offsets of type {dtype}")
        if dtype not in self._moves:
            ir = DeferredIr(f"{_FOLDER}.shared_memory_ir", "move_rows_ir", (_MOVE, dtype))
            self._moves[dtype] = host_jit().compile(ir, (_MOVE,), passes=Passes.TIDY)
        return self._moves[dtype]

    def _reduction(self, step: ReduceRows) -> NativeLibrary:
        streams = streams_of_code(len(step.sources), len(step.targets))
        key = step.dtype, step.reduction, streams, Prefixes(step.from_prefix, step.to_prefix)
        if key not in self._reductions:
            ir = DeferredIr(f"{_FOLDER}.reduce_rows_ir", "reduce_rows_ir", (_REDUCE, *key))
            self._reductions[key] = host_jit().compile(ir, (_REDUCE,))
        return self._reductions[key]


_MOVE, _REDUCE = "spmd_move_rows", "spmd_reduce_rows"
_FUNCTIONS: dict[type[Step], str] = {
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
    """Return the process's engine, made at first use."""
    return NativeCollectiveEngine()


class LoadedCollective:
    """CollectiveProgram as a header and two tables of records (see shared_memory_ir).

    The records get their functions at the first use of ``start`` or ``address``; the code is compiled meanwhile.
    """

    def __init__(self, engine: NativeCollectiveEngine, program: CollectiveProgram) -> None:
        assert len(program.steps) == len(program.alternate)
        self._program = program
        self._lists: list[Int64Array] = []
        table = self._table(program.steps)
        is_one = program.alternate is program.steps
        self._tables = [table, table if is_one else self._table(program.alternate)]
        count = len(program.steps)
        this, following = (table.ctypes.data for table in self._tables)
        signals = program.signals
        self._header = HeaderRecord(
            count, count, -signals, signals, this, following, 0, 0
        ).to_array()
        self._engine = engine

    @cached_property
    def start(self) -> Callable[[], int]:
        """The call that starts a run. It and that of ``advancing`` enter native code without Python in between."""
        self._link()
        return self._engine.start_of(self._header)

    @cached_property
    def address(self) -> int:
        """The address of the header."""
        self._link()
        return int(self._header.ctypes.data)

    def _link(self) -> None:
        """Wait for the steps' code and write its addresses into the records. Both tables have the same functions."""
        functions = [self._engine.function_of(step) for step in self._program.steps]
        for table in self._tables:
            table[: len(functions), 0] = functions

    @property
    def run(self) -> int:
        return int(self._header[2])

    def advancing(self, spins: int) -> Callable[[], int]:
        return self._engine.advancing(self._header, spins)

    def missing(self) -> list[int]:
        position, count, before = (int(word) for word in self._header[:3])
        # Both tables have the same steps, at other addresses of slots.
        step = self._program.steps[position] if position < count else None
        if isinstance(step, AwaitMessages):
            return step.messages.late()
        if not isinstance(step, Await):
            return []
        return [
            rank
            for rank, counter in zip(step.ranks, step.counters, strict=True)
            if ctypes.c_int64.from_address(counter).value < before + step.number
        ]

    def failure(self) -> str:
        step = self._program.steps[int(self._header[0])]
        assert isinstance(step, (StartMessages, AwaitMessages)), "nothing else fails so"
        return step.messages.failure()

    def _table(self, steps: Sequence[Step]) -> Int64Array:
        table = np.zeros((max(len(steps), 1), RECORD_WORDS), np.int64)
        for record, step in zip(table, steps, strict=False):
            values = self._record_of(step).to_list()
            record[: len(values)] = values
        return table

    def _record_of(self, step: Step) -> Record:
        """Return the record of ``step``, whose function is not known yet."""
        if isinstance(step, Signal):
            return SignalRecord(0, step.counter, step.number)
        if isinstance(step, Await):
            return AwaitRecord(0, self._list(step.counters), len(step.counters), step.number)
        if isinstance(step, StartMessages):
            function, sent = step.messages.start_all, (step.messages.sent, *step.messages.crossing)
            return StartMessagesRecord(0, function, *_requests(step.messages), *sent)
        if isinstance(step, AwaitMessages):
            function, statuses = step.messages.test_all, step.messages.statuses
            return AwaitMessagesRecord(0, function, *_requests(step.messages), statuses)
        if isinstance(step, CopyRows):
            shape = (step.rows, step.row_bytes, step.source_stride, step.target_stride)
            return CopyRowsRecord(0, step.source, step.target, *shape)
        if isinstance(step, SwapRows):
            return SwapRowsRecord(0, step.one, step.other, step.rows, step.row_bytes, step.stride)
        if isinstance(step, RotateBytes):
            addresses, count = self._list(step.addresses), len(step.addresses)
            return RotateRecord(0, addresses, count, step.num_bytes, int(step.is_cycle))
        if isinstance(step, FillZero):
            return FillZeroRecord(0, step.target, step.num_bytes)
        if isinstance(step, ReduceRows):
            elements = step.row_elements * (2 if step.dtype.kind == "c" else 1)
            sources, targets = self._list(step.sources), self._list(step.targets)
            lists = (sources, len(step.sources), targets, len(step.targets))
            strides = (step.source_stride, step.target_stride)
            return ReduceRowsRecord(0, *lists, step.rows, elements, *strides)
        sizes = (step.entries, step.row_bytes, step.source_rows, step.target_rows)
        return MoveRowsRecord(0, step.source, step.target, *step.tables, *sizes)

    def _list(self, addresses: Sequence[int]) -> int:
        """Store ``addresses`` as a list in memory and return the list's address."""
        self._lists.append(np.array(addresses, np.int64))
        return int(self._lists[-1].ctypes.data)


def _requests(messages: Messages) -> tuple[int, int, int]:
    return messages.count, messages.requests, messages.error
