"""Native calls, each the address of a function and that of its argument record, and actions that consist of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial

from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, Passes, host_jit
from runtime.program.argument_record import Address, Record, Word, record, word_count, word_index
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

_VOID_OF_RECORD = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """Call of function ``name`` of ``code``, a ``void function(ptr record)`` that raises nothing and calls no Python.

    ``record`` is the address of the argument record. ``alive`` keeps alive the record and the arrays whose addresses it
    holds. ``callees`` are pairs of the address of a field of the record and the call whose function's address belongs
    there. These fields are written when ``function`` is first needed: a kernel is bound without waiting for its code,
    so that other kernels are compiled concurrently.
    """

    code: NativeLibrary
    name: str
    record: int
    alive: tuple[object, ...]
    callees: tuple[tuple[int, NativeCall], ...] = ()

    @property
    def function(self) -> int:
        """Return the function's address after waiting until its code and that of the callees is compiled."""
        for field, call in self.callees:
            ctypes.c_int64.from_address(field).value = call.function
        return self.code.address(self.name)


class NativeAction:
    """Action that consists of native calls, which run one after the other.

    If Python calls the action, ctypes makes each call and releases the GIL meanwhile. In a thunk sequence ``calls`` are
    rows of a segment instead, which native code runs.
    """

    def __init__(self, calls: Sequence[NativeCall]) -> None:
        self.calls = tuple(calls)

    def __call__(self) -> None:
        for run in self._runs:
            run()

    @cached_property
    def _runs(self) -> list[Callable[[], None]]:
        return [
            partial(_VOID_OF_RECORD(call.function), ctypes.c_void_p(call.record))
            for call in self.calls
        ]


class SharedAction:
    """Independent native actions, which the threads that share a device's work may run concurrently."""

    def __init__(self, pieces: Sequence[NativeAction]) -> None:
        self.pieces = tuple(pieces)

    def __call__(self) -> None:
        for piece in self.pieces:
            piece()


def name_code(action: Callable[[], None], caller: str) -> None:
    """Record ``caller``, for profilers, as the first thunk that calls the code of ``action``."""
    if isinstance(action, SharedAction):
        for piece in action.pieces:
            name_code(piece, caller)
    elif isinstance(action, NativeAction):
        for call in action.calls:
            call.code.caller = call.code.caller or caller


def native_call(
    code: NativeLibrary, name: str, record: NDArray, arrays: tuple[NDArray, ...]
) -> NativeAction:
    """Return an action that calls function ``name`` of ``code`` with the address of ``record``.

    The action keeps ``record`` and ``arrays``, whose addresses the record holds, alive.
    """
    call = NativeCall(code, name, record.ctypes.data, (record, arrays))
    return NativeAction((call,))


def in_order(*actions: Callable[[], None]) -> Callable[[], None]:
    """Return an action that runs ``actions`` in order. It is a NativeAction if all of ``actions`` are."""
    calls: list[NativeCall] = []
    for action in actions:
        if not isinstance(action, NativeAction):
            return partial(_run_all, actions)
        calls += action.calls
    return NativeAction(calls)


def _run_all(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        action()


#: Action of kernels that have nothing to compute because their arrays are empty.
NOTHING = NativeAction(())


# ---- repeated calls


REPEAT = "spmd_repeat"


@record
class CallRecord(Record):
    """Address of a function, and of its argument record."""

    function: Address
    record: Address


@record
class MoveRecord(Record):
    """Address of a field of a record, and the stride that is added to the field after each repetition."""

    word: Address
    step: Word


@record
class RepeatRecord(Record):
    """Number of repetitions, numbers of calls and moves, and then the calls and the moves."""

    times: Word
    call_count: Word
    move_count: Word
    calls: Sequence[CallRecord]
    moves: Sequence[MoveRecord]


def repeated(
    count: int, calls: Sequence[NativeCall], moves: Sequence[tuple[int, int]]
) -> tuple[NativeCall, ...]:
    """Return calls that run ``calls``, in order, ``count`` (>= 1) times.

    ``moves`` are pairs of the address of a 64-bit field, usually an address in a call's record, and the number that is
    added to the field after each repetition. At the end all fields have their old values again.
    """
    if count == 1:
        return tuple(calls)
    inner = [CallRecord(0, call.record) for call in calls]
    moving = [MoveRecord(word, step) for word, step in moves if step]
    record = RepeatRecord(count, len(inner), len(moving), inner, moving).to_array()
    at = record.ctypes.data
    first, size = word_index(RepeatRecord, "calls"), word_count(CallRecord)
    callees = tuple((at + 8 * (first + size * n), call) for n, call in enumerate(calls))
    return (NativeCall(repeat_code(), REPEAT, at, (record,), callees),)


@cache
def repeat_code() -> NativeLibrary:
    """Return the library of ``REPEAT``, which takes the address of a RepeatRecord."""
    return host_jit().compile(
        DeferredIr("runtime.cpu.kernels.repeat_ir", "repeat_ir"), (REPEAT,), passes=Passes.TIDY
    )


# ---- calls of matrix products, whose operands can be relocated


@dataclass(frozen=True, slots=True)
class RelocatableCall:
    """Native calls that compute a matrix product, and whose operands and result can be moved to other addresses.

    ``lhs``, ``rhs`` and ``result`` are the addresses of the record words that hold the addresses of these arrays.
    """

    calls: tuple[NativeCall, ...]
    lhs: tuple[int, ...] = ()
    rhs: tuple[int, ...] = ()
    result: tuple[int, ...] = ()

    def then(self, other: RelocatableCall) -> RelocatableCall:
        """Return the calls followed by those of ``other``, with the record words of both."""
        return RelocatableCall(
            self.calls + other.calls,
            self.lhs + other.lhs,
            self.rhs + other.rhs,
            self.result + other.result,
        )

    def exchanged(self) -> RelocatableCall:
        """Return the calls with lhs and rhs exchanged.

        Calls that were bound to the transposed product, rhs^T lhs^T, so become calls of lhs rhs.
        """
        return RelocatableCall(self.calls, self.rhs, self.lhs, self.result)

    def repeated(self, count: int, steps: Sequence[int]) -> RelocatableCall:
        """Return the calls repeated ``count`` times.

        After each repetition lhs, rhs and result advance by the three numbers of bytes ``steps``.
        """
        moves = [
            (field, step)
            for fields, step in zip((self.lhs, self.rhs, self.result), steps, strict=True)
            for field in fields
        ]
        return RelocatableCall(repeated(count, self.calls, moves), self.lhs, self.rhs, self.result)


def moving(action: NativeAction) -> RelocatableCall:
    """Return ``action``, a call whose record begins with the addresses of lhs, rhs and result, as relocatable."""
    lhs, rhs, result = ((action.calls[0].record + 8 * word,) for word in range(3))
    return RelocatableCall(action.calls, lhs, rhs, result)


def has_runs(matrix: NDArray) -> bool:
    """Return whether each row of ``matrix``, a two-dimensional array, is contiguous."""
    return bool(matrix.shape[1] == 1 or matrix.strides[1] == matrix.itemsize)
