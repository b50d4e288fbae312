"""Native code of a thread team: the workers (worker_ir.py) of one process.

The calling thread runs the first worker. The other threads stay in native code between steps: they spin for a while for
the next step, then sleep on a semaphore. The system often wakes a thread on the core of the thread that woke it, which
is about to spin there. A worker that finds itself on an earlier worker's core therefore moves to another core before
the step.

If there are more cores than workers, the additional workers are helpers without tables. They run pieces of the shares
of the others (work_sharing_ir.py) until the step is over.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.core_affinity_ir import KEEP_OFF, add_keep_off, core_of, note_core
from runtime.cpu.step.segment import Stop
from runtime.cpu.step.segment_ir import add_segment
from runtime.cpu.step.spin_wait_ir import give_way, pause
from runtime.cpu.step.thread_team import TeamWord
from runtime.cpu.step.work_sharing_ir import HELP
from runtime.cpu.step.worker import DRIVE, REWIND, WorkerStop, WorkerWord
from runtime.cpu.step.worker_ir import add_worker, pointer_to

#: Time that a helper sleeps between two polls for shares once SPIN_LIMIT polls have found none.
SLEEP_MICROSECONDS = 50


def team_ir() -> str:
    """Return a module with the functions of ``TeamCode``."""
    module = Module("declare i32 @sem_init(ptr, i32, i32)", "declare i32 @usleep(i32)")
    module.declare("declare i32 @sem_wait(ptr)")
    module.declare("declare i32 @sem_post(ptr)")
    add_segment(module)
    add_worker(module)
    add_keep_off(module)
    _add_open(module)
    _add_assist(module)
    _add_serve(module)
    _add_ask(module)
    _add_team(module)
    return module.text()


def _add_open(module: Module) -> None:
    f = FunctionWriter("spmd_open_worker", module=module, parameters=("ptr",))
    zero = f.constant(0, "i32")
    f.call("i32", "sem_init", pointer_to(f.parameters[0], WorkerWord.SEMAPHORE), zero, zero)
    f.finish()


def _add_assist(module: Module) -> None:
    """Add ``assist``(worker, helped), which runs pieces of the shares of the first ``helped`` workers.

    It returns the number of the step when the first worker has finished the step or another step is requested.
    """
    f = internal_function(module, "assist", "ptr", "i64", result="i64", attributes="")
    worker, helped = f.parameters
    asked = pointer_to(worker, WorkerWord.ASKED)
    step, spin_limit = asked.word(), worker.word(WorkerWord.SPIN_LIMIT)
    workers = worker.pointer(WorkerWord.WORKERS)
    over = pointer_to(workers.pointer(0), WorkerWord.DONE)
    with f.repeat(0) as rounds:
        (vain,) = rounds.values
        rounds.leave(asked.load(order="monotonic").differs(step))
        rounds.leave(over.load(order="monotonic").equals(step))
        with f.repeat(0, f.false()) as look:
            i, done = look.values
            look.leave(i.compared("uge", helped))
            has_helped = f.call("i1", HELP, pointer_to(workers.pointer(i), WorkerWord.OPEN_SHARE))
            look.again(i + 1, done | has_helped)
        with f.when(done):
            rounds.again(0)
        with f.when(vain.ult(spin_limit)) as soon:
            pause(f)
            soon.otherwise()
            f.call("i32", "usleep", f.constant(SLEEP_MICROSECONDS, "i32"))
        rounds.again(vain + 1)
    f.ret(step)
    f.finish()


def _add_serve(module: Module) -> None:
    f = FunctionWriter("spmd_serve", module=module, parameters=("ptr", "i64"), result="i64")
    worker, at_work = f.parameters
    asked, finished = pointer_to(worker, WorkerWord.ASKED), pointer_to(worker, WorkerWord.DONE)
    with f.repeat(at_work) as steps:
        (is_at_work,) = steps.values
        with f.when(is_at_work.equals(0)):
            _await_step(f, worker, finished.word())
            _keep_apart(f, worker)
        helped = worker.word(WorkerWord.HELPED)
        with f.when(helped.differs(0)):
            finished.store(f.call("i64", "assist", worker, helped), order="release")
            steps.again(0)
        stop = f.call("i64", DRIVE, worker, 0)
        with f.when(stop.equals(Stop.FINISHED)):
            finished.store(asked.load(order="monotonic"), order="release")
            steps.again(0)
        f.ret(stop)
    f.finish()


def _await_step(f: FunctionWriter, worker: Pointer, done: Int) -> None:
    """Spin, then sleep, until a step other than ``done`` is requested. On retirement the function returns."""
    asked, asleep = pointer_to(worker, WorkerWord.ASKED), pointer_to(worker, WorkerWord.ASLEEP)
    spin_limit = worker.word(WorkerWord.SPIN_LIMIT)
    with f.repeat(0) as look:
        (spins,) = look.values
        wanted = asked.load(order="acquire")
        with f.when(wanted < 0):
            f.ret(WorkerStop.RETIRED)
        look.leave(wanted.differs(done))
        with f.when(spins.ult(spin_limit)):
            give_way(f, spins, spin_limit >> 1)
            look.again(spins + 1)
        asleep.store(1, order="seq_cst")
        with f.when(asked.load(order="seq_cst").equals(done)):
            f.call("i32", "sem_wait", pointer_to(worker, WorkerWord.SEMAPHORE))
            asleep.store(0, order="seq_cst")
        look.again(0)
    asleep.store(0, order="seq_cst")


def _keep_apart(f: FunctionWriter, worker: Pointer) -> None:
    """Move the thread to another core if an earlier worker is on this one."""
    core = note_core(f, worker)
    earlier, workers = worker.word(WorkerWord.EARLIER), worker.pointer(WorkerWord.WORKERS)
    with f.repeat(0) as each:
        (i,) = each.values
        each.leave(i.compared("uge", earlier))
        with f.when(core_of(workers.pointer(i)).equals(core)):
            f.call("void", KEEP_OFF, worker, workers, earlier)
            each.leave()
        each.again(i + 1)


def _add_ask(module: Module) -> None:
    f = internal_function(module, "ask", "ptr", "i64", attributes="")
    worker, step = f.parameters
    pointer_to(worker, WorkerWord.ASKED).store(step, order="seq_cst")
    with f.when(pointer_to(worker, WorkerWord.ASLEEP).load(order="seq_cst").differs(0)):
        f.call("i32", "sem_post", pointer_to(worker, WorkerWord.SEMAPHORE))
    f.finish()
    f = FunctionWriter("spmd_retire", module=module, parameters=("ptr",))
    f.call("void", "ask", f.parameters[0], -1)
    f.finish()


def _add_team(module: Module) -> None:
    f = FunctionWriter("spmd_team", module=module, parameters=("ptr", "i64"), result="i64")
    team, begin = f.parameters
    count, workers = team.word(TeamWord.WORKERS), team.pointer(TeamWord.WORKER_LIST)
    number, own = team.element("i64", TeamWord.STEP), workers.pointer(0)
    with f.unless_zero(begin):
        step = number.word() + 1
        number.store(step)
        note_core(f, own)
        with f.loop(
            count, nonempty=False
        ) as i:  # rewind all before any runs, because a worker reads the states of others
            f.call("void", REWIND, workers.pointer(i))
        with f.loop(count, first=1, nonempty=False) as i:
            f.call("void", "ask", workers.pointer(i), step)
    stop = f.call("i64", DRIVE, own, 0)
    with f.when(stop.differs(Stop.FINISHED)):
        f.ret(stop)
    _join(f, own, workers, number.word())
    f.ret(Stop.FINISHED)
    f.finish()


def _join(f: FunctionWriter, own: Pointer, workers: Pointer, step: Int) -> None:
    """Wait for the workers that have tables; helpers have no unfinished pieces.

    If a worker is late, the function returns JOINING, so that Python can handle signals.
    """
    working, rounds = f.parameters[0].word(TeamWord.WORKING), own.word(WorkerWord.ROUNDS)
    spin_limit = rounds + own.word(WorkerWord.YIELDS)
    with f.loop(working, first=1, nonempty=False) as i:
        done = pointer_to(workers.pointer(i), WorkerWord.DONE)
        with f.repeat(0) as look:
            (spins,) = look.values
            look.leave(done.load(order="acquire").equals(step))
            with f.when(spins.compared("uge", spin_limit)):
                f.ret(WorkerStop.JOINING)
            give_way(f, spins, rounds)
            look.again(spins + 1)
    pointer_to(own, WorkerWord.DONE).store(step, order="release")
