"""Compile and run cases of the zoo on devices of this process, each with its figures and the verdict on its outputs.

    python -m benchmarks.zoo.ours FOLDER...

Each folder is one that `build` wrote; it gets outputs.npz and ours.json. An error of this project is written there as
well, so that the other folders have their turn; a process that dies leaves no file.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from benchmarks.zoo.judge import Ran, judge
from collectives.schedule.checker import check_schedule
from launch.data.inputs import read_inputs, write_arrays
from launch.entry import Entry
from launch.execution import time_steps
from launch.imported_before import import_before_timing
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import machine_for
from runtime.buffers.checker.checker import check_buffers
from runtime.interpreter import settings_for_compiling
from spmd.analysis.cost import module_cost
from spmd.errors import SpmdError
from spmd.hlo import HloModule

WARM_UP, STEPS = 2, 20
#: A program that is compiled first, so that no case's time has that of starting LLVM in it.
FIRST = """HloModule first

ENTRY main {
  x = f32[8,8] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def run_case(folder: Path) -> dict[str, Any]:
    case = json.loads((folder / "case.json").read_text())
    traced = traced_module(folder, case["devices"]) if case.get("calls_python") else None
    options = CompileOptions(machine=machine_for(None, None, "cpu"))
    start, cpu = time.perf_counter(), time.process_time()  # behind the tracing, which is JAX's
    with settings_for_compiling():  # as spmd.compile does
        module = spmd.load(module_file(folder)) if traced is None else traced
        executable = compile_module(module, case["devices"], options)
        executable.load_devices()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    entry = Entry.of_executable(executable)
    inputs = read_inputs(folder / "inputs.npz", entry.inputs)
    outputs = [np.asarray(x) for x in executable.run(*inputs)]
    write_arrays(folder / "outputs.npz", "out", outputs)
    times = time_steps(executable, executable.put(inputs), WARM_UP + STEPS)[WARM_UP:]
    check_schedule(executable.module)
    check_buffers(executable.module, executable.program)
    memory = executable.stats.figures()
    paths = [leaf["path"] or "result" for leaf in case["outputs"]]
    ran = Ran(module, entry, case["devices"], inputs, outputs)
    checks, notes = judge(ran, folder / "jax.npz", paths)
    figures = {
        "instructions": module.instruction_count,
        "compile_s": seconds,
        "compile_cpu_s": cpu_seconds,
        "step_ms": 1e3 * min(times),
        "wire_bytes": module_cost(executable.module).wire_bytes,
        "peer_wire_bytes": peer_wire_bytes(folder / "peer.hlo"),
        "memory": memory["arguments"] + memory["outputs"] + memory["temp"] - memory["aliased"],
    }
    return {"figures": figures, "outputs": [check.as_json() for check in checks], "notes": notes}


def module_file(folder: Path) -> Path:
    """JAX writes text, TensorFlow a proto."""
    proto = folder / "module.pb"
    return proto if proto.exists() else folder / "module.hlo"


def traced_module(folder: Path, devices: int) -> HloModule:
    """Return the module of a case that calls Python functions: from JAX in this process, since no file holds them."""
    from benchmarks.zoo.build import prepare_jax
    from benchmarks.zoo.registry import builder_of

    prepare_jax(8)
    program = builder_of(folder.parent.name)(devices)
    return spmd.from_jax(program.function, *program.arguments)


def peer_wire_bytes(path: Path) -> float | None:
    """Bytes that one device sends in XLA's program; None where its text cannot be read."""
    try:
        return module_cost(spmd.load(path)).wire_bytes
    except (SpmdError, OSError):
        return None


def main(folders: list[str]) -> int:
    import_before_timing()
    compile_module(spmd.parse(FIRST), 2).load_devices()
    for name in folders:
        folder = Path(name)
        try:
            found = run_case(folder)
        except SpmdError as error:
            found = {"refused": str(error)}
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            found = {"crashed": traceback.format_exc()}
        (folder / "ours.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
