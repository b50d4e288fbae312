"""Listing of a program's kernels: records, IR as it is written and as LLVM optimizes it, assembly, and times.

The kernels are those of this machine's processor, as one thread runs them. Thunks whose kernels have the same machine
code are listed together.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from collectives.communicator.loopback.communicator import LoopbackWorld
from runtime.arrays.slots import DeviceMemory
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.kernels.native_call import NativeAction, repeated
from runtime.cpu.prediction.step import StepPredictor
from runtime.device_program import DeviceProgram
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.thunks import KernelThunk, traverse
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription

#: A kernel is timed until MEASURED_SECONDS have passed, at most MOST_RUNS times; each time it runs RUNS_PER_CALL times.
#: The shortest time counts.
MEASURED_SECONDS, MOST_RUNS, RUNS_PER_CALL = 0.02, 1000, 8


@dataclass
class ListedKernel:
    """A kernel, with the ``thunks`` that share its machine code.

    predicted, measured: seconds of one run of the first thunk; measured on memory that holds zeros.
    libraries: machine code of its native calls, each once; empty if Python runs it.
    """

    number: int
    thunks: list[KernelThunk]
    predicted: float
    measured: float
    libraries: tuple[NativeLibrary, ...] = field(repr=False)

    @property
    def kind(self) -> str:
        """The name of the record's class, without ``Kernel``."""
        return type(self.thunks[0].kernel).__name__.removesuffix("Kernel")

    @property
    def stem(self) -> str:
        """The name of its files."""
        name = re.sub(r"[^\w.-]", "_", self.thunks[0].name)
        return f"kernel_{self.number:04d}.{name}"


def list_kernels(program: DeviceProgram, machine: MachineDescription) -> list[ListedKernel]:
    """Bind, predict and run the kernels of device 0 of ``program``. Returns them in the order of its thunks."""
    jit = host_jit()
    jit.keeps_sources = True
    try:
        return list(_listed(program, StepPredictor(machine, program.num_devices, {})))
    finally:
        jit.keeps_sources = False


def _listed(program: DeviceProgram, predictor: StepPredictor) -> Iterator[ListedKernel]:
    world = LoopbackWorld(program.num_devices, 60.0, native_collective_engine())
    memory = DeviceMemory(program.assignment.allocations, world.communicator(0))
    known: dict[object, ListedKernel] = {}
    for thunk in traverse(program.thunks):
        if not isinstance(thunk, KernelThunk):
            continue
        parts = (thunk.operands, thunk.results, thunk.scratch)
        arrays = KernelArrays(*(tuple(map(memory.array, part)) for part in parts))
        action = CPU_KERNELS.bind(thunk.kernel, arrays)
        libraries = _libraries_of(action)
        code = tuple(library.key for library in libraries)
        key = (type(thunk.kernel), code or thunk.kernel)
        if key in known:
            known[key].thunks.append(thunk)
            continue
        found = predictor.of(thunk)
        seconds = sum(one.seconds / max(one.times, 1.0) for one in found)
        known[key] = ListedKernel(len(known), [thunk], seconds, _measured(action), libraries)
    yield from known.values()


def _libraries_of(action: Action) -> tuple[NativeLibrary, ...]:
    calls = action.calls if isinstance(action, NativeAction) else ()
    return tuple(dict.fromkeys(call.code for call in calls))


def _measured(action: Action) -> float:
    """Return the least seconds of one of several runs, after one that waits for the code.

    Native calls are repeated by native code, so that Python's part is not in it.
    """
    times = 1
    if isinstance(action, NativeAction) and action.calls:
        action, times = NativeAction(repeated(RUNS_PER_CALL, action.calls, ())), RUNS_PER_CALL
    action()
    best, end = float("inf"), time.perf_counter() + MEASURED_SECONDS
    for _ in range(MOST_RUNS):
        start = time.perf_counter()
        action()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            break
    return best / times


def listing_table(kernels: Sequence[ListedKernel]) -> str:
    """Return a line for each kernel: its kind, thunks and times."""
    lines = [f"{'kernel':8s} {'kind':22s} {'predicted us':>12s} {'measured us':>12s}  thunks"]
    for one in kernels:
        names = [thunk.name for thunk in one.thunks]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(
            f"{one.number:<8d} {one.kind:22s} {1e6 * one.predicted:12.3f} {1e6 * one.measured:12.3f}"
            f"  {', '.join(names[:3])}{more}"
        )
    return "\n".join(lines) + "\n"


def kernel_files(kernel: ListedKernel) -> dict[str, str]:
    """Return the texts of one kernel by what its files end in: the record, IR before and after LLVM, and assembly."""
    record = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", record_text(kernel.thunks[0].kernel))
    texts = {"txt": record + "\n"}
    for n, library in enumerate(kernel.libraries):
        if library.source is None:
            continue  # compiled before sources were recorded
        ir, passes = library.source
        optimized, assembly = host_jit().listing(ir, passes)
        number = f"{n}." if len(kernel.libraries) > 1 else ""
        texts |= {f"{number}ll": ir, f"{number}opt.ll": optimized, f"{number}s": assembly}
    return texts


def kernels_text(kernels: Sequence[ListedKernel]) -> str:
    """Return the table, and then all texts of each kernel."""
    parts = [listing_table(kernels)]
    for one in kernels:
        parts += [f"---- {one.stem}.{ending}\n{text}" for ending, text in kernel_files(one).items()]
    return "\n".join(parts)


def record_text(value: Any, depth: int = 0) -> str:
    """Return a record as indented text, a line for each field that is itself a record or a list of records."""
    pad = "  " * (depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if len(repr(value)) < 80 - 2 * depth:
            return repr(value)
        fields = [
            f"{pad}{each.name} = {record_text(getattr(value, each.name), depth + 1)}"
            for each in dataclasses.fields(value)
            if each.repr
        ]
        return "\n".join([f"{type(value).__name__}:", *fields])
    if isinstance(value, tuple | list) and len(repr(value)) >= 80 - 2 * depth:
        return "\n".join(["", *(f"{pad}{record_text(one, depth + 1)}" for one in value)])
    return repr(value)
