"""spmd-executor as a worker: makes a module's inputs, and compiles and runs it for one device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from benchmarks.xla_modules.worker import serve
from launch.entry import Entry
from launch.expect import check_output, read_expected
from launch.inputs import seeded_inputs, write_arrays
from partitioner.spmd_partitioner import require_devices
from spmd.errors import SpmdError
from spmd.hlo import HloModule, Opcode
from spmd.ops.attrs import SortAttrs
from spmd.shape import PrimitiveType

#: Elements of inputs and outputs together; larger modules are left out by both sides.
MAX_ELEMENTS = 1 << 24


def answer(request: dict[str, Any]) -> dict[str, Any]:
    module = spmd.load(request["module"])
    entry = Entry.of_module(module)
    if request["do"] == "inputs":
        return made_inputs(module, entry, Path(request["inputs"]))
    arrays = seeded_inputs(0, entry.inputs)
    got = spmd.compile(module, devices=1).run(*arrays)
    wanted = read_expected(Path(request["outputs"]), entry.outputs)
    worst = max(
        (check_output(a, b).of_tolerance for a, b in zip(got, wanted, strict=True)), default=0.0
    )
    found = {"error_of_tolerance": worst}
    if worst > 1:
        # A difference that the reference evaluator shares is a question of definition or of rounding.
        evaluated = spmd.evaluate(module, *arrays)
        again = [replace(w, values=v) for w, v in zip(wanted, evaluated, strict=True)]
        found["error_to_evaluator"] = max(
            check_output(a, b).of_tolerance for a, b in zip(got, again, strict=True)
        )
        found["free_choice"] = free_choice(module)
    return found


def free_choice(module: HloModule) -> str:
    """Return the reason why two right compilers may give different results; empty if there is none."""
    for x in module.all_instructions():
        if x.opcode is Opcode.RNG:
            return "random numbers of the implementation's own"
        if x.opcode is Opcode.SORT and not x.attrs_as(SortAttrs).is_stable:
            return "equal keys of an unstable sort"
    return ""


def made_inputs(module: HloModule, entry: Entry, path: Path) -> dict[str, Any]:
    """Write the module's inputs and say what kind of module it is."""
    elements = sum(shape.num_elements for shape in (*entry.inputs, *entry.outputs))
    if elements > MAX_ELEMENTS:
        return {"left_out": f"{elements} elements of inputs and outputs"}
    if not runs_on_one_device(module):
        return {"left_out": "several devices"}
    arrays = seeded_inputs(0, entry.inputs)
    write_arrays(path, "arg", arrays)
    return {"types": [kind_of(shape.element_type) for shape in entry.inputs]}


def runs_on_one_device(module: HloModule) -> bool:
    """Return whether neither the header nor a sharding of `module` asks for several devices."""
    try:
        require_devices(module, 1)
    except SpmdError:
        return False
    return max(module.num_partitions, 1) * max(module.replica_count, 1) == 1


def kind_of(kind: PrimitiveType) -> str:
    """Return the name of a type that NumPy's files lack; empty for others."""
    dtype = np.dtype(kind.numpy)
    return "" if dtype.isbuiltin == 1 else dtype.name


if __name__ == "__main__":
    serve(answer)
