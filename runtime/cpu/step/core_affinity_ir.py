"""Native code by which a worker's thread moves to another core than the workers before it are on."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.worker_ir import WorkerWord, slot

KEEP_OFF = "keep_off"
#: Of the system's set of cores: room for 8192.
_SET_WORDS = 128


def note_core(f: FunctionWriter, worker: Pointer) -> Int:
    """Leave the core on which the thread runs in the worker's words; return it."""
    f.declare("declare i32 @sched_getcpu()")
    core: Int = f.call("i32", "sched_getcpu").resized("i64", signed=True)
    slot(worker, WorkerWord.CORE).store(core, order="monotonic")
    return core


def core_of(worker: Pointer) -> Int:
    """Return the core on which a worker was seen last."""
    core: Int = slot(worker, WorkerWord.CORE).load(order="monotonic")
    return core


def add_keep_off(module: Module) -> None:
    """Add ``KEEP_OFF`` of a worker, its team's list and how many are before it.

    Until they meet again the thread may be on any core that the process has, less those of the earlier workers.
    """
    module.declare("declare i32 @getpid()")
    module.declare("declare i32 @sched_getaffinity(i32, i64, ptr)")
    module.declare("declare i32 @sched_setaffinity(i32, i64, ptr)")
    f = FunctionWriter(
        KEEP_OFF, module=module, parameters=("ptr", "ptr", "i64"), linkage="internal"
    )
    worker, workers, earlier = f.parameters
    cores, size = f.array(_SET_WORDS, "i64"), 8 * _SET_WORDS
    unknown = f.call("i32", "sched_getaffinity", f.call("i32", "getpid"), size, cores)
    with f.when(unknown.equals(0)):
        with f.loop(earlier, nonempty=False) as i:
            core = core_of(workers.pointer(i))
            place = cores.element("i64", core >> 6)
            place.store(place.word() & ((f.constant(1) << (core & 63)) ^ -1))
        refused = f.call("i32", "sched_setaffinity", f.constant(0, "i32"), size, cores)
        with f.when(refused.equals(0)):
            note_core(f, worker)
            f.ret()
    # There is none left, or a sandbox forbids it: workers take turns.
    slot(worker, WorkerWord.EARLIER).store(0)
    f.finish()
