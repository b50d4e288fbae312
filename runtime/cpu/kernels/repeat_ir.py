"""Native code that repeats calls and advances the addresses in their records, so that one record serves a batch."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.native_call import REPEAT, CallRecord, MoveRecord, RepeatRecord
from runtime.program.argument_record import word_count, word_index


def repeat_ir() -> str:
    """Return the IR of ``repeat_code``."""
    f = FunctionWriter(REPEAT, RepeatRecord, calls=0, moves=0)
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
    """Add ``times`` times its stride to each field that the ``count`` MoveRecords at ``moves`` name."""
    with f.loop(count, nonempty=False) as i:
        move = f.view(MoveRecord, moves.element(_MOVE, i))
        word = move.word
        word.store(word.word() + move.step * times)


_CALL, _MOVE = (f"[{word_count(kind)} x i64]" for kind in (CallRecord, MoveRecord))
