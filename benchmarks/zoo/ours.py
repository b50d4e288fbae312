"""Compile and run cases of the zoo on devices of this process, each with its figures.

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
from launch.execution import time_steps
from launch.inputs import read_inputs, write_arrays
from launch.machine_option import machine_for
from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.analysis.cost import module_cost
from spmd.errors import SpmdError
from spmd.hlo import HloModule

WARM_UP, STEPS = 2, 20


def run_case(folder: Path) -> dict[str, Any]:
    case = json.loads((folder / "case.json").read_text())
    start = time.perf_counter()
    module = module_of(folder, case)
    options = CompileOptions(machine=machine_for(None, None, "cpu"))
    executable = compile_module(module, case["devices"], options)
    executable.load_devices()
    seconds = time.perf_counter() - start
    shapes = [boundary.shape for boundary in executable.inputs]
    inputs = read_inputs(folder / "inputs.npz", shapes)
    outputs = [np.asarray(x) for x in executable.run(*inputs)]
    write_arrays(folder / "outputs.npz", "out", outputs)
    times = time_steps(executable, executable.put(inputs), WARM_UP + STEPS)[WARM_UP:]
    memory = executable.stats.figures()
    return {
        "instructions": module.instruction_count,
        "compile_s": seconds,
        "step_ms": 1e3 * min(times),
        "wire_bytes": module_cost(executable.module).wire_bytes,
        "peer_wire_bytes": peer_wire_bytes(folder / "peer.hlo"),
        "memory": memory["arguments"] + memory["outputs"] + memory["temp"] - memory["aliased"],
    }


def module_of(folder: Path, case: dict[str, Any]) -> HloModule:
    """Return the module of a case: from its file, or from JAX in this process where it calls Python functions."""
    if not case["calls_python"]:
        return spmd.load(folder / "module.hlo")
    from benchmarks.zoo.build import prepare_jax
    from benchmarks.zoo.registry import builder_of

    prepare_jax(8)
    program = builder_of(folder.parent.name)(case["devices"])
    return spmd.from_jax(program.function, *program.arguments)


def peer_wire_bytes(path: Path) -> float | None:
    """Bytes that one device sends in XLA's program; None where its text cannot be read."""
    try:
        return module_cost(spmd.load(path)).wire_bytes
    except (SpmdError, OSError):
        return None


def main(folders: list[str]) -> int:
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
