"""Count what a loaded program's steps take from malloc, mmap and Python, and who asks: 100 steps on arrays that stay.

    python -m benchmarks.memory.step_allocations MODULE [--devices N] [--steps 100] [--no-fusion] [--written-out]
    [--json FILE] python -m launch.mpirun -n N -- -m benchmarks.memory.step_allocations MODULE

There are two counts of as many steps, each after some steps that warm up. The first one is by the counter of
allocation_counter.c, which a C compiler (cc) makes and the benchmark preloads into itself: calls and bytes of malloc,
related functions and mmap, by the library that called. It does not see Python's small objects, which are pieces of
memory that Python took once. The second count is by tracemalloc: the bytes of Python's objects and NumPy's arrays that
the steps leave behind, and the most at one time above what was there before, by source line. The exit code is 1 where
anybody but the interpreter calls malloc or mmap, or where Python's bytes grow with the steps.

Steps are those of launch/execution.py, or with --written-out those of a caller's loop around `run`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import operator
import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from pathlib import Path

import spmd
from launch.data.inputs import SeededInputs
from launch.entry import Entry
from launch.execution import StepLoop
from launch.options import CompileOptions
from launch.ranks.rank_environment import world_of_environment
from runtime.executable import Executable

WARM_UP = 20
#: Standard deviation of the inputs, as in `spmd bench`.
DEVIATION = 0.05
PRELOAD = "LD_PRELOAD"
#: Bytes of Python that may stay after all steps, since counters and lists may have grown.
SLACK = 4096
LINES = 8
TURNS = 3
#: Files of the interpreter itself; extension modules are others.
INTERPRETER = ("libpython", "python")


@dataclass(frozen=True)
class Asked:
    """Allocations of one caller in all steps: calls, bytes, and the bytes of the largest one."""

    caller: str
    calls: int
    bytes: int
    largest: int


@dataclass
class Counted:
    """Counts of all steps.

    ``python_net`` bytes stay after them; ``python_peak`` are the most at one time above what was there before.
    """

    steps: int
    native: list[Asked] = field(default_factory=list)
    python_net: int = 0
    python_peak: int = 0
    python_lines: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(asked.calls for asked in self.native)

    @property
    def calls_of_libraries(self) -> int:
        """The number of calls that the interpreter has not made."""
        return sum(a.calls for a in self.native if not a.caller.startswith(INTERPRETER))

    @property
    def grows(self) -> bool:
        return self.python_net > SLACK


class _Site(ctypes.Structure):
    _fields_ = (
        ("caller", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("largest", ctypes.c_uint64),
    )


class _Place(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def count_native(work: Callable[[], object]) -> list[Asked]:
    """Return who called malloc, related functions and mmap while ``work`` ran, in all threads; most calls first.

    The counter must have been preloaded.
    """
    library = ctypes.CDLL(None)
    found = ctypes.POINTER(_Site)()
    library.allocation_counter_stop.restype = ctypes.c_size_t
    library.allocation_counter_start()
    work()
    number = library.allocation_counter_stop(ctypes.byref(found))
    sites = [found[i] for i in range(number) if found[i].calls]
    asked = [Asked(_caller(library, s.caller), s.calls, s.bytes, s.largest) for s in sites]
    return sorted(asked, key=lambda one: -one.calls)


def _caller(library: ctypes.CDLL, address: int) -> str:
    place = _Place()
    if not library.dladdr(ctypes.c_void_p(address), ctypes.byref(place)) or not place.file:
        return "native code made here"
    name = f" in {place.symbol.decode()}" if place.symbol else ""
    return f"{Path(place.file.decode()).name}+{address - (place.base or 0):#x}{name}"


def count_python(work: Callable[[], object], counted: Counted) -> None:
    """Store the count that leaves least among ``TURNS``: the others include what else the interpreter did meanwhile."""
    tracemalloc.start(4)
    try:
        work()  # so that what tracemalloc itself keeps of these lines exists
        turns = [_counted_once(work) for _ in range(TURNS)]
    finally:
        tracemalloc.stop()
    found = min(turns, key=lambda one: one[0])
    counted.python_net, counted.python_peak, counted.python_lines = found


def _counted_once(work: Callable[[], object]) -> tuple[int, int, list[str]]:
    gc.collect()  # also gives back the tuples and lists that Python keeps for the next ones
    before = tracemalloc.take_snapshot()
    start = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    most = tracemalloc.get_traced_memory()[1]
    gc.collect()
    now = tracemalloc.get_traced_memory()[0]
    after = tracemalloc.take_snapshot()
    own = tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)
    changes = after.filter_traces([own]).compare_to(before.filter_traces([own]), "lineno")
    lines = [str(line) for line in changes[:LINES] if line.size_diff > 0]
    return now - start, most - start, lines


def stepper(executable: Executable, *, written_out: bool) -> Callable[[int], None]:
    """Return a function that runs a number of steps, each on what the step before has made.

    With ``written_out`` it is a loop as a caller of ``run`` writes it, instead of ``StepLoop``.
    """
    state = executable.put(SeededInputs(0, [b.shape for b in executable.inputs], DEVIATION))
    feedback = Entry.of_executable(executable).feedback
    if not written_out:
        loop = StepLoop(executable, state, feedback)
        return partial(repeat, loop)
    current = [state]
    order = list(range(len(state)))
    for output, argument in feedback.items():
        order[argument] = len(state) + output

    def run(steps: int) -> None:
        for _ in range(steps):
            outputs = executable.run(current[0])
            both = current[0] + outputs
            current[0] = reduce(operator.add, (both[i] for i in order))
            del both, outputs  # what is not fed back need not outlive the step

    return run


def repeat(loop: StepLoop, steps: int) -> None:
    for _ in range(steps):
        loop.prepare()
        loop.run()


def count(executable: Executable, steps: int, *, written_out: bool = False) -> Counted:
    run = stepper(executable, written_out=written_out)
    run(WARM_UP)
    counted = Counted(steps)
    if PRELOAD in os.environ:
        counted.native = count_native(lambda: run(steps))
    count_python(lambda: run(steps), counted)
    return counted


def counting_environment(folder: Path) -> dict[str, str]:
    """Return this process's environment, with the counter preloaded before all other libraries.

    The counter is compiled into ``folder`` by a C compiler, which must be there.
    """
    source, counter = Path(__file__).with_name("allocation_counter.c"), folder / "counter.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(counter), str(source)]
    subprocess.run(command, check=True)
    return {**os.environ, PRELOAD: str(counter)}


def run_counted(arguments: list[str]) -> int:
    """Run this benchmark again, with the counter, and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.memory.step_allocations", *arguments]
        environment = counting_environment(Path(folder))
        return subprocess.run(command, env=environment, check=False).returncode


def report(counted: Counted) -> None:
    print(
        f"{counted.steps} steps: {counted.calls} calls of malloc and mmap, "
        f"{counted.calls_of_libraries} not by the interpreter"
    )
    for asked in counted.native[:LINES]:
        print(
            f"  {asked.calls:8d} calls, {asked.bytes:10d} bytes, largest {asked.largest}: {asked.caller}"
        )
    print(
        f"Python: {counted.python_net} bytes stay after them, {counted.python_peak} at most at one time"
    )
    for line in counted.python_lines:
        print(f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module")
    parser.add_argument("--devices", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--fusion", action=argparse.BooleanOptionalAction, default=CompileOptions().fusion
    )
    parser.add_argument(
        "--written-out", action="store_true", help="steps by `run` and arrays that are picked"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if PRELOAD not in os.environ:
        if shutil.which("cc"):
            return run_counted(sys.argv[1:])
        print("no C compiler: malloc and mmap are not counted", file=sys.stderr)
    rank, size = world_of_environment() or (0, None)
    settings = CompileOptions(fusion=options.fusion)
    executable = spmd.compile(
        spmd.load(options.module), devices=options.devices or size, options=settings
    )
    counted = count(executable, options.steps, written_out=options.written_out)
    if rank == 0:
        report(counted)
        if options.json:
            options.json.write_text(json.dumps(asdict(counted), indent=1) + "\n")
    return 1 if counted.calls_of_libraries or counted.grows else 0


if __name__ == "__main__":
    sys.exit(main())
