"""Native code that moves a worker's thread to a core on which no earlier worker runs."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.worker import WorkerWord
from runtime.cpu.step.worker_ir import pointer_to

KEEP_OFF = "keep_off"
#: 64-bit words of a ``cpu_set_t`` of 8192 cores.
_CPU_SET_SIZE = 128


def note_core(f: FunctionWriter, worker: Pointer) -> Int:
    """Store the core on which the thread runs in the record of ``worker``, and return it."""
    f.declare("declare i32 @sched_getcpu()")
    core: Int = f.call("i32", "sched_getcpu").resized("i64", signed=True)
    pointer_to(worker, WorkerWord.CORE).store(core, order="monotonic")
    return core


def core_of(worker: Pointer) -> Int:
    """Return the core that ``worker`` has stored last."""
    core: Int = pointer_to(worker, WorkerWord.CORE).load(order="monotonic")
    return core


def add_keep_off(module: Module) -> None:
    """Add ``KEEP_OFF``(worker, list of the team's workers, number of workers before this one) to ``module``.

    It restricts the calling thread to the cores of the process on which no earlier worker runs. If there are none, or
    the system refuses, the worker stops to avoid the cores of earlier workers.
    """
    module.declare("declare i32 @getpid()")
    module.declare("declare i32 @sched_getaffinity(i32, i64, ptr)")
    module.declare("declare i32 @sched_setaffinity(i32, i64, ptr)")
    f = internal_function(module, KEEP_OFF, "ptr", "ptr", "i64", attributes="")
    worker, workers, earlier = f.parameters
    cores, size = f.array(_CPU_SET_SIZE, "i64"), 8 * _CPU_SET_SIZE
    unknown = f.call("i32", "sched_getaffinity", f.call("i32", "getpid"), size, cores)
    with f.when(unknown.equals(0)):
        with f.loop(earlier, nonempty=False) as i:
            core = core_of(workers.pointer(i))
            mask = cores.element("i64", core >> 6)
            mask.store(mask.word() & ((f.constant(1) << (core & 63)) ^ -1))
        refused = f.call("i32", "sched_setaffinity", f.constant(0, "i32"), size, cores)
        with f.when(refused.equals(0)):
            note_core(f, worker)
            f.ret()
    # No core is left, or a sandbox forbids the call: from now on workers share cores.
    pointer_to(worker, WorkerWord.EARLIER).store(0)
    f.finish()
