"""Native code of a worker: it runs the tables of one thread's devices in turn.

Each round runs every table until it blocks, so a device that waits for another device of the same worker costs one poll
per round. After some rounds without progress the worker yields the core between rounds, and after some more it returns,
so that Python can detect a stall.
"""

from __future__ import annotations

from runtime.codegen.ir.control_flow import Repetition
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.device_table import IN_FLIGHT, ROW, STATE, State
from runtime.cpu.step.segment import FUNCTION, Stop
from runtime.cpu.step.spin_wait_ir import give_way
from runtime.cpu.step.worker import DRIVE, REWIND, WorkerWord


def pointer_to(worker: Pointer, word: WorkerWord) -> Pointer:
    """Return the address of ``word`` of the record ``worker``."""
    return worker.element("i64", word.value)


def add_worker(module: Module) -> None:
    """Add REWIND and DRIVE to ``module``, which must have the functions of ``add_segment``."""
    _add_rewind(module)
    _add_drive(module)


def _add_rewind(module: Module) -> None:
    f = internal_function(module, REWIND, "ptr", attributes="")
    (worker,) = f.parameters
    count, tables = worker.word(WorkerWord.TABLES), worker.pointer(WorkerWord.TABLE_LIST)
    pointer_to(worker, WorkerWord.CURRENT).store(0)
    with f.loop(count, nonempty=False) as i:
        table = tables.pointer(i)
        table.element("i64", ROW).store(0)
        table.element("i64", STATE).store(State.RUNNING.value)
        table.element("i64", IN_FLIGHT).store(0)
    f.finish()


def _add_drive(module: Module) -> None:
    f = FunctionWriter(DRIVE, module=module, parameters=("ptr", "i64"), result="i64")
    worker, begin = f.parameters
    with f.unless_zero(begin):
        f.call("void", REWIND, worker)
    count, rounds = worker.word(WorkerWord.TABLES), worker.word(WorkerWord.ROUNDS)
    round_limit = rounds + worker.word(WorkerWord.YIELDS)
    current = pointer_to(worker, WorkerWord.CURRENT)
    with f.repeat(0, current.word()) as turn:
        vain, start = turn.values
        # If the round resumes at a table, the tables before it count as unfinished and as having made progress.
        with f.repeat(start, start, start) as each:
            i, alive, moved = each.values
            each.leave(i.compared("uge", count))
            _drive_table(f, each, current)
        with f.when(alive.equals(0)):
            current.store(0)
            f.ret(Stop.FINISHED)
        with f.when(moved.differs(0)):
            turn.again(0, 0)
        more = vain + 1
        with f.when(more.compared("ugt", round_limit)):
            current.store(0)
            f.ret(Stop.BLOCKED)
        give_way(f, vain, rounds)
        turn.again(more, 0)
    f.finish()


def _drive_table(f: FunctionWriter, each: Repetition, current: Pointer) -> None:
    """Run the next table until it blocks. Count the table if it is unfinished, and if it has made progress."""
    worker = f.parameters[0]
    i, alive, moved = each.values
    table = worker.pointer(WorkerWord.TABLE_LIST).pointer(i)
    state, row = table.element("i64", STATE), table.element("i64", ROW)
    known = state.word()
    with f.when(known.equals(State.RUNNING.value)):
        before = row.word()
        stop = f.call("i64", FUNCTION, table, worker.word(WorkerWord.SPINS))
        with f.when(stop.equals(Stop.FINISHED)):
            state.store(State.FINISHED.value)
            each.again(i + 1, alive, moved + 1)
        with f.when(stop.equals(Stop.BLOCKED)):
            has_moved = before.differs(row.word()).resized("i64")
            each.again(i + 1, alive + 1, moved + has_moved)
        current.store(i)
        f.ret(stop)
    with f.when(known.equals(State.FINISHED.value)):
        each.again(i + 1, alive, moved)
    each.again(i + 1, alive + 1, moved)
