"""Kernel forms that programs choose on this machine: in how many cases, and the largest part of a predicted step.

    python -m benchmarks.forms FOLDER... [--only REGEX] [--each FORM]

Each FOLDER holds cases (module.hlo, case.json), such as a corpus or what `python -m benchmarks.zoo --work FOLDER`
leaves. Programs are compiled and their kernels bound, not run. A form is the record's class and the native functions
that it is bound to, with what distinguishes their code; `python` stands for kernels that Python runs. A part is of the
predicted step (runtime/cpu/prediction), which prices some kernels by their bytes alone: sorts, transforms and
factorizations take more. What a form is worth is found by disabling it and timing steps in turns
(docs/internals/kernel_forms.md). --each: the cases of forms whose names hold FORM.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from collectives.communicator.loopback.communicator import LoopbackWorld
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.source import load_module
from launch.target.machine_option import machine_for
from runtime.arrays.slots import DeviceMemory
from runtime.codegen.llvm.jit import host_jit
from runtime.cpu.collective.collective_engine import native_collective_engine
from runtime.cpu.kernels.native_call import NativeAction, NativeCall
from runtime.cpu.prediction.step import predicted_step
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.thunks import KernelThunk
from spmd.errors import SpmdError

#: Cores that devices share in the prediction, whatever this machine has.
CORES = 2
#: Functions that the code of a kernel may call, and their part in the name of its form.
VARIANTS = (("@blas(", "by BLAS"), ("@transpose", "transposing"))


def forms_of(folder: Path) -> dict[str, float]:
    """Return the forms of a case's kernels and their part of the predicted step of device 0."""
    about = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    devices = about.get("devices") or about["num_partitions"] * about.get("num_replicas", 1)
    machine = machine_for(None, None, "cpu")
    module = load_module(str(folder / "module.hlo"))
    executable = compile_module(module, devices, CompileOptions(machine=machine))
    program = executable.program
    world = LoopbackWorld(program.num_devices, 60.0, native_collective_engine())
    memory = DeviceMemory(program.assignment.allocations, world.communicator(0))
    thunks = predicted_step(program, executable.module, machine, CORES).thunks
    whole = sum(one.seconds for one in thunks) or 1.0
    found: dict[str, float] = defaultdict(float)
    for one in thunks:
        if isinstance(one.thunk, KernelThunk):
            for form in forms_of_kernel(one.thunk, memory):
                found[form] += one.seconds / whole
    return found


def forms_of_kernel(thunk: KernelThunk, memory: DeviceMemory) -> set[str]:
    """Return the forms of the native calls to which the thunk's kernel is bound."""
    places = (thunk.operands, thunk.results, thunk.scratch)
    arrays = KernelArrays(*(tuple(map(memory.array, each)) for each in places))
    action = CPU_KERNELS.bind(thunk.kernel, arrays)
    kind = type(thunk.kernel).__name__.removesuffix("Kernel")
    if not isinstance(action, NativeAction):
        return {f"{kind}: python"}
    return {f"{kind}: {variant_of(call)}" for call in calls_within(action.calls)}


def calls_within(calls: tuple[NativeCall, ...]) -> Iterator[NativeCall]:
    """Yield calls, those that a call repeats in its place."""
    for call in calls:
        inner = call.alive[1] if len(call.alive) > 1 else None
        if isinstance(inner, tuple) and inner and isinstance(inner[0], NativeCall):
            yield from calls_within(inner)
        else:
            yield call


def variant_of(call: NativeCall) -> str:
    """Return the function's name, and what its code calls where forms of one name differ by that."""
    ir = "" if call.code.source is None else call.code.source[0]
    return call.name + "".join(f" {suffix}" for mark, suffix in VARIANTS if mark in ir)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names match")
    parser.add_argument("--each", default="", metavar="FORM", help="list the cases of these forms")
    options = parser.parse_args()
    host_jit().keeps_sources = True
    parts: dict[str, list[tuple[float, str]]] = defaultdict(list)
    cases = [path.parent for own in options.folders for path in sorted(own.rglob("case.json"))]
    chosen = [case for case in cases if re.search(options.only, str(case))]
    for case in chosen:
        name = case.name if not case.name.isdigit() else f"{case.parent.name}_x{case.name}"
        try:
            for form, part in forms_of(case).items():
                parts[form].append((part, name))
        except (SpmdError, OSError) as error:
            print(f"{name}: {error}")
    print(f"{len(chosen)} cases\n{'cases':>5s} {'largest part':>12s}  form (where)")
    for form, own in sorted(parts.items()):
        largest, where = max(own)
        print(f"{len(own):5d} {100 * largest:10.1f} %  {form} ({where})")
        if options.each and options.each in form:
            print("".join(f"{'':20s}{100 * part:5.1f} %  {name}\n" for part, name in sorted(own)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
