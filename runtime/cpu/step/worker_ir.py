"""Native code of a worker: it runs the tables of one thread's devices in turn.

Each round runs every table until it blocks; a device that waits for another one of the same worker costs one poll per
round. After some rounds without progress the worker yields the core, and after some more it returns, so that Python can
detect a stall.
"""

from __future__ import annotations

from enum import IntEnum

from runtime.codegen.ir.control_flow import Repetition
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.segment_ir import FUNCTION, Stop
from runtime.cpu.step.spin_wait_ir import give_way
from runtime.cpu.step.table_record import IN_FLIGHT, ROW, STATE, State

#: REWIND(worker): set its tables to their first rows. DRIVE(worker, begin): run its tables, from their first rows if
#: ``begin``.
REWIND, DRIVE = "rewind", "spmd_drive"


class WorkerWord(IntEnum):
    """Fields of a worker's record; fields that different threads write have cache lines of their own."""

    TABLES = 0  # number of tables
    TABLE_LIST = 1  # address of their addresses
    SPINS = 2  # polls of a wait, if the worker has one table
    ROUNDS = 3  # rounds without progress before the core is yielded between rounds
    YIELDS = 4  # rounds with a yield before the worker returns
    CURRENT = 5  # the table at which it stopped
    SPIN_LIMIT = (
        6  # polls for the next step before the thread sleeps; it yields the core in the second half
    )
    WORKERS = 7  # address of the addresses of the team's workers
    ASKED = 8  # number of the requested step; negative: retire
    EARLIER = 9  # number of workers before it, whose cores it avoids
    HELPED = (
        10  # number of workers, from the first on, that a helper helps; 0: it has tables of its own
    )
    DONE = 16  # number of the completed step
    ASLEEP = 17
    CORE = 18  # on which it began the step
    OPEN_SHARE = 19  # address of the share whose pieces may be taken; 0: none
    SEMAPHORE = 24


#: A ``sem_t`` is 32 bytes in glibc and musl.
WORKER_WORDS = 32


def pointer_to(worker: Pointer, word: WorkerWord) -> Pointer:
    return worker.element("i64", word.value)


def add_worker(module: Module) -> None:
    """Add REWIND and DRIVE to a module that has a segment's functions."""
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
        # If the round resumes at a table, those before it count as unfinished and as having moved.
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
    """Run the next table until it blocks; count it if it is unfinished, and if it has moved."""
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
