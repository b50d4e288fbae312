"""LLVM IR of the actions that start messages and await them, by functions of the message library.

The records hold the functions' addresses, so that one code serves every library. Requests are an array of the library's
handles, which may have any size.

A library makes progress only while it is called, so a wait calls it repeatedly; a call takes as long as many polls of a
counter. The record keeps an error, because polling the collectives in flight discards the status, and the library
reports a failed request only once.
"""

from __future__ import annotations

from collectives.communicator.actions.engine import RunStatus
from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.cpu.collective.action_records import (
    AWAIT_MESSAGES,
    START_MESSAGES,
    AwaitMessagesRecord,
    MessagesRecord,
)
from runtime.cpu.collective.shared_memory_ir import action_function, header_field
from runtime.cpu.step.clock_ir import add_clock, note_time
from runtime.cpu.step.spin_wait_ir import pause
from runtime.program.argument_record import Record

_POLLS_PER_TEST = 16
"""Number of polls of a counter that take as long as one test of messages by the MPI library.

The loop that awaits messages counts each test as this many of its ``spins``.
"""


def messages_ir() -> str:
    """Return a module with the functions START_MESSAGES and AWAIT_MESSAGES."""
    module = Module()
    add_clock(module)
    _add_start(module)
    _add_await(module)
    return module.text()


def _begun(module: Module, name: str, record: type[Record]) -> FunctionWriter:
    """Return the writer of an action function that returns at once after an earlier error."""
    f = action_function(module, name, record)
    with f.when(f.record.error.word().differs(0)):
        f.ret(RunStatus.MESSAGES_FAILED)
    return f


def _return_unless_well(f: FunctionWriter, code: Int) -> None:
    with f.when(code.differs(0)):
        f.record.error.store(code.resized("i64", signed=True))
        f.ret(RunStatus.MESSAGES_FAILED)


def _add_start(module: Module) -> None:
    f = _begun(module, START_MESSAGES, MessagesRecord)
    rec = f.record
    code = f.call("i32", rec.library.name, rec.count.resized("i32"), rec.requests)
    _return_unless_well(f, code)
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _add_await(module: Module) -> None:
    f = _begun(module, AWAIT_MESSAGES, AwaitMessagesRecord)
    rec, (_, header, spins) = f.record, f.parameters
    complete = f.variable("i32")
    count, given = rec.count.resized("i32"), (rec.requests, complete, rec.statuses)
    with f.repeat(spins) as test:
        (left,) = test.values
        _return_unless_well(f, f.call("i32", rec.library.name, count, *given))
        test.leave(complete.load("i32").differs(0))
        fewer = left - _POLLS_PER_TEST
        with f.when(fewer < 0):
            f.ret(RunStatus.BLOCKED)
        pause(f)
        test.again(fewer)
    note_time(f, header_field(header, "met"))
    f.ret(RunStatus.COMPLETE)
    f.finish()
