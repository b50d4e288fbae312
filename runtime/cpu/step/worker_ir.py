"""Native code of a worker: the tables of one thread's devices, run by turns.

It goes round them, each as far as it comes; a device whose collective waits for another one of the worker costs no more
than a look. Nobody else's progress is waited for by spinning alone: after some rounds in vain the core is given up, and
after some more the worker returns, so that Python can watch the time.
"""

from __future__ import annotations

from enum import IntEnum

from runtime.codegen.ir.control_flow import Repetition
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.segment_ir import FUNCTION, Stop
from runtime.cpu.step.spin_wait_ir import give_way
from runtime.cpu.step.table_record import IN_FLIGHT, ROW, STATE, State

#: (worker): put its tables to their first rows. (worker, begin): run its tables, from their first row where ``begin``;
#: otherwise on.
REWIND, DRIVE = "rewind", "spmd_drive"


class WorkerWord(IntEnum):
    """Words of a worker; what different threads write lies on lines of its own."""

    TABLES = 0  # how many
    TABLE_LIST = 1  # address of their addresses
    SPINS = 2  # looks at who is late, each time that the only device is at its wait
    ROUNDS = 3  # rounds in vain before the core is given up, before each further one
    YIELDS = 4  # rounds in vain of that kind before the worker returns
    CURRENT = 5  # the table at which it stopped
    PATIENCE = 6  # looks for the next step before the thread sleeps; it gives up the core before the later ones
    WORKERS = 7  # address of the addresses of the team's workers
    ASKED = 8  # number of the step that is to be run; negative: no more
    EARLIER = 9  # workers before it, whose cores it keeps off
    HELPED = 10  # workers, the first of the team, whose devices' shares it takes pieces of; 0: it has tables of its own
    DONE = 16  # number of the step that has been run
    ASLEEP = 17
    CORE = 18  # on which it began the step
    OFFER = 19  # address of the share of which pieces may be taken
    SEMAPHORE = 24


#: A ``sem_t`` is 32 bytes in glibc and musl.
LANE_WORDS = 32


def slot(worker: Pointer, word: WorkerWord) -> Pointer:
    return worker.element("i64", word.value)


def add_worker(module: Module) -> None:
    """Add REWIND and DRIVE to a module that has a segment's functions."""
    _add_rewind(module)
    _add_drive(module)


def _add_rewind(module: Module) -> None:
    f = FunctionWriter(REWIND, module=module, parameters=("ptr",), linkage="internal")
    (worker,) = f.parameters
    count, tables = worker.word(WorkerWord.TABLES), worker.pointer(WorkerWord.TABLE_LIST)
    slot(worker, WorkerWord.CURRENT).store(0)
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
    patience = rounds + worker.word(WorkerWord.YIELDS)
    current = slot(worker, WorkerWord.CURRENT)
    with f.repeat(0, current.word()) as turn:
        vain, start = turn.values
        # Where it goes on at a table, those before it are taken for alive, and for having come on.
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
        with f.when(more.compared("ugt", patience)):
            current.store(0)
            f.ret(Stop.BLOCKED)
        give_way(f, vain, rounds)
        turn.again(more, 0)
    f.finish()


def _drive_table(f: FunctionWriter, each: Repetition, current: Pointer) -> None:
    """Run the next table as far as it comes; count whether it is alive, and whether it has moved."""
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
