"""Native code that repeats calls and advances addresses in their records: batches with one record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.record import Address, Record, Word, record, word_count, word_index
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.kernels.native_call import NativeCall

FUNCTION = "spmd_repeat"


@record
class CallRecord(Record):
    """Function and its argument record."""

    function: Address
    record: Address


@record
class MoveRecord(Record):
    """Address of a record's field, and the stride that is added to the field after each repetition."""

    word: Address
    step: Word


@record
class RepeatRecord(Record):
    """Number of repetitions, numbers of calls and moves, the calls and the moves."""

    times: Word
    call_count: Word
    move_count: Word
    calls: Sequence[CallRecord]
    moves: Sequence[MoveRecord]


def repeated(
    count: int, calls: Sequence[NativeCall], moves: Sequence[tuple[int, int]]
) -> tuple[NativeCall, ...]:
    """Return ``calls`` repeated ``count`` times. moves: (address of a field, stride added after each repetition).

    At the end the fields have their old values again.
    """
    if count == 1:
        return tuple(calls)
    inner = [CallRecord(call.function, call.record) for call in calls]
    moving = [MoveRecord(word, step) for word, step in moves if step]
    record = RepeatRecord(count, len(inner), len(moving), inner, moving).to_array()
    code = repeat_code()
    return (NativeCall(code, FUNCTION, record.ctypes.data, (record, tuple(calls))),)


@cache
def repeat_code() -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of a RepeatRecord."""
    return host_jit().compile(_repeat_ir(), (FUNCTION,), passes=Passes.TIDY)


def _repeat_ir() -> str:
    f = FunctionWriter(FUNCTION, RepeatRecord, calls=0, moves=0)
    rec = f.record
    times, call_count, move_count = rec.times, rec.call_count, rec.move_count
    calls = f.parameters[0].element("i64", word_index(RepeatRecord, "calls"))
    moves = calls.element(_CALL, call_count)
    with f.loop(times):
        with f.loop(call_count) as c:
            call = calls.element(_CALL, c)
            f.call("void", call.pointer(0).name, call.pointer(1))
        _advance_fields(f, moves, move_count, f.constant(1))
    _advance_fields(f, moves, move_count, -times)
    return f.end()


def _advance_fields(f: FunctionWriter, moves: Pointer, count: Int, times: Int) -> None:
    with f.loop(count, nonempty=False) as i:
        move = f.view(MoveRecord, moves.element(_MOVE, i))
        word = move.word
        word.store(word.word() + move.step * times)


_CALL, _MOVE = (f"[{word_count(kind)} x i64]" for kind in (CallRecord, MoveRecord))
