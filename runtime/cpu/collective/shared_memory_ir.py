"""LLVM IR of collectives over shared memory: an interpreter of action records, and the actions that signal and copy.

A program is a table of records of RECORD_WORDS 64-bit words (action_records.py), of which the first is the address of
an action function:

    i64 action(ptr record, ptr header, i64 spins)      0: complete, go on; otherwise a RunStatus: the program stops here

The header has the state of a run; the records have the addresses of all memory that ranks share. A counter has one
writer, whose stores have release order; the loads of waiting ranks have acquire order. Native code never waits in the
operating system: after ``spins`` polls it returns, and the caller yields the core.

Two words of the header are times of the run that was started last, if the header asks for them. They are nanoseconds
of CLOCK_MONOTONIC (which is time.monotonic_ns and time.perf_counter_ns), or 0 before they are known:

    LANDED   its last action was found complete: the results are complete, and no peer accesses the buffers
    MET      its first wait was found over: the peers that it needs first have arrived. 0 in runs without waits

A time is that of the poll that *found* the event, since the state of a collective becomes known when it is polled.
"""

from __future__ import annotations

from collectives.communicator.actions.engine import RunStatus
from runtime.codegen.elements.builder import Bool, Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.collective.action_records import (
    INDEX_TYPES,
    RECORD_WORDS,
    AwaitRecord,
    CopyRowsRecord,
    FillZeroRecord,
    HeaderRecord,
    MoveRowsRecord,
    SignalRecord,
)
from runtime.cpu.step.clock_ir import add_clock, note_time
from runtime.cpu.step.spin_wait_ir import pause
from runtime.program.argument_record import Record, word_index


def action_function(module: Module, name: str, record: type[Record]) -> FunctionWriter:
    """Return the writer of the action function ``name``, whose parameters are a ``record``, the header, and spins."""
    return FunctionWriter(name, record, module=module, parameters=("ptr", "i64"), result="i64")


def header_field(header: Pointer, name: str) -> Pointer:
    """Return the address of the field ``name`` of ``header``."""
    return header.element("i64", word_index(HeaderRecord, name))


def shared_memory_ir() -> str:
    """Return a module with the functions ENTRY_POINTS and ACTION_FUNCTIONS."""
    module = Module()
    add_action_interpreter(module)
    _add_signal(module)
    _add_await(module)
    _add_copies(module)
    return module.text()


def add_action_interpreter(module: Module, linkage: str = "") -> None:
    """Add the clock and the functions ENTRY_POINTS to ``module``, which may contain other code."""
    add_clock(module)
    f = FunctionWriter(
        "spmd_start", module=module, parameters=("ptr",), result="i64", linkage=linkage
    )
    (header,) = f.parameters
    view = f.view(HeaderRecord, header)
    with f.when(view.next.differs(view.count)):
        f.ret(RunStatus.MISUSED)
    header_field(header, "before").store(view.before + view.signals)
    this, following = view.this_actions, view.next_actions
    header_field(header, "this_actions").store(following)
    header_field(header, "next_actions").store(this)
    header_field(header, "next").store(0)
    for name in ("landed", "met"):
        header_field(header, name).store(view.untimed)
    f.ret(f.call("i64", "spmd_advance", header, 0))
    f.finish()
    _add_advance(module, linkage)


def _add_advance(module: Module, linkage: str) -> None:
    f = FunctionWriter(
        "spmd_advance", module=module, parameters=("ptr", "i64"), result="i64", linkage=linkage
    )
    header, spins = f.parameters
    view = f.view(HeaderRecord, header)
    first, count, actions = view.next, view.count, view.this_actions
    with f.repeat(first) as run:
        (i,) = run.values
        run.leave(i.compared("uge", count))
        record = actions.element(f"[{RECORD_WORDS} x i64]", i)
        status = f.call("i64", record.pointer().name, record, header, spins)
        with f.when(status.differs(RunStatus.COMPLETE)):
            header_field(header, "next").store(i)
            f.ret(status)
        run.again(i + 1)
    header_field(header, "next").store(count)
    note_time(f, header_field(header, "landed"))
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _wanted(f: FunctionWriter) -> Int:
    """Return the value that a counter has once the record's signal is given in this run."""
    wanted: Int = f.view(HeaderRecord, f.parameters[1]).before + f.record.number
    return wanted


def _add_signal(module: Module) -> None:
    f = action_function(module, "spmd_signal", SignalRecord)
    f.record.counter.store(_wanted(f), order="release")
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _add_await(module: Module) -> None:
    f = action_function(module, "spmd_await", AwaitRecord)
    _, header, spins = f.parameters
    counters, members, wanted = f.record.counters, f.record.members, _wanted(f)
    with f.repeat(0, spins) as each:
        i, spin_limit = each.values
        each.leave(i.compared("uge", members))
        counter = counters.pointer(i)
        with f.repeat(spin_limit) as look:
            (left,) = look.values
            look.leave(counter.load(order="acquire") >= wanted)
            with f.when(left <= 0):
                f.ret(RunStatus.BLOCKED)
            pause(f)
            look.again(left - 1)
        each.again(i + 1, left)
    note_time(f, header_field(header, "met"))
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _add_copies(module: Module) -> None:
    f = action_function(module, "spmd_copy_rows", CopyRowsRecord)
    rec = f.record
    with f.loop(rec.rows) as r:
        source, target = rec.source.at(r * rec.source_stride), rec.target.at(r * rec.target_stride)
        f.memcpy(target, source, rec.row_bytes)
    f.ret(RunStatus.COMPLETE)
    f.finish()
    f = action_function(module, "spmd_fill_zero", FillZeroRecord)
    f.memset(f.record.target, f.record.num_bytes)
    f.ret(RunStatus.COMPLETE)
    f.finish()


def move_rows_ir(name: str, dtype: str) -> str:
    """Return a module with the action function ``name``, which moves rows by tables of offsets of type ``dtype``."""
    kind, signed = INDEX_TYPES[dtype], not dtype.startswith("u")
    f = action_function(Module(), name, MoveRowsRecord)
    rec = f.record
    row_bytes = rec.row_bytes
    with f.loop(rec.entries, nonempty=False) as u:
        start, rows, target_start = (
            table.element(kind, u).load(kind).resized("i64", signed=signed)
            for table in (rec.starts, rec.amounts, rec.target_starts)
        )
        outside = _outside(start, rows, rec.source_rows) | _outside(
            target_start, rows, rec.target_rows
        )
        with f.when(outside):
            f.ret(RunStatus.OUT_OF_BOUNDS)
        source, target = rec.source.at(start * row_bytes), rec.target.at(target_start * row_bytes)
        f.memcpy(target, source, rows * row_bytes)
    f.ret(RunStatus.COMPLETE)
    return f.end()


def _outside(start: Int, rows: Int, size: Int) -> Bool:
    """Return whether ``rows`` rows from ``start`` on exceed ``size``.

    Unsigned comparisons make negative numbers large, and there is no sum that could wrap.
    """
    return rows.compared("ugt", size) | start.compared("ugt", size - rows)
