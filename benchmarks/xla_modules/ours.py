"""spmd-executor as a worker: makes a module's inputs, compiles and runs it, and compares the outputs with XLA's.

Files hold the arrays of all devices, device after device, or the global ones of a module that is to be partitioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from benchmarks.xla_modules.arrangement import Arrangement, arranged, arrangement_of, manual_text
from benchmarks.xla_modules.fitting import fitting
from benchmarks.xla_modules.soundness import free_choice, nan_choice, unsound
from benchmarks.xla_modules.worker import serve
from launch.checks.expect import (
    Expected,
    OutputCheck,
    Verdict,
    check_output,
    compare_elements,
    default_tolerance,
)
from launch.checks.rounding import judge_rounding
from launch.data.inputs import Array, from_storage, read_inputs, seeded_inputs, write_arrays
from launch.data.npz import StoredArrays
from launch.entry import Entry
from launch.options import CompileOptions
from launch.pipeline import is_partitioned
from spmd.errors import UnsupportedError
from spmd.evaluator.op_tables import REGISTERED, OpTables
from spmd.evaluator.rounding_noise import RoundingNoise
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, PrimitiveType

#: Modules for more devices are left out by both sides.
MAX_DEVICES = 8
#: No evaluation that tells rounding from errors begins after so many seconds.
JUDGE_SECONDS = 60


def answer(request: dict[str, Any]) -> dict[str, Any]:
    module = spmd.load(request["module"])
    arrangement = arrangement_of(module)
    module = arranged(module, arrangement)
    if request["do"] == "inputs":
        return made_inputs(module, arrangement, Path(request["inputs"]), request["elements"])
    entry = Entry.of_module(module)
    count = copies(arrangement)
    arrays = read_inputs(Path(request["inputs"]), entry.inputs * count)
    outputs = compiled(module, arrangement, arrays)
    if "keep" in request:
        write_arrays(Path(request["keep"]), "out", outputs)
    wanted = expected(Path(request["outputs"]), entry.outputs * count, outputs)
    found = compared(module, arrangement, arrays, outputs, wanted)
    if found["verdict"] == "agrees" and arrangement.devices > 1:
        # The evaluation of all devices in lock step is the definition, and has to agree, too.
        try:
            defined = evaluated(module, arrangement, arrays)
        except UnsupportedError as error:  # the compiled program does not compute what nobody reads
            return {**found, "reason": f"the reference evaluator: {error}"[:300]}
        found = compared(module, arrangement, arrays, defined, wanted)
        found["reason"] = found["reason"] and f"the reference evaluator: {found['reason']}"
    return found


def made_inputs(
    module: HloModule, arrangement: Arrangement, path: Path, limit: int
) -> dict[str, Any]:
    """Write the module's inputs and say what kind of module it is; ``limit``: of elements, outputs included."""
    entry = Entry.of_module(module)
    elements = sum(shape.num_elements for shape in (*entry.inputs, *entry.outputs))
    if elements * copies(arrangement) > limit:
        return {"left_out": "more elements of inputs and outputs than --elements"}
    if arrangement.devices > MAX_DEVICES:
        return {"left_out": f"more than {MAX_DEVICES} devices"}
    reason = unsound(module)
    if reason:
        return {"unsound": reason}
    arrays = [
        array
        for device in range(copies(arrangement))
        for array in fitting(module, seeded_inputs(device, entry.inputs))
    ]
    write_arrays(path, "arg", arrays)
    found = {
        "types": [kind_of(shape.element_type) for shape in entry.inputs],
        "shapes": [list(shape.dims) for shape in entry.outputs],
        "replicas": arrangement.replicas,
        "partitions": arrangement.partitions,
        "per_device": arrangement.per_device,
    }
    if arrangement.per_device and arrangement.partitions > 1:
        for kind, loops in (("module", False), ("otherwise", True)):
            found[kind] = str(path.with_name(f"{kind}.hlo"))
            Path(found[kind]).write_text(manual_text(module, loops=loops))
    return found


def copies(arrangement: Arrangement) -> int:
    """Return how many devices have arrays of their own."""
    return arrangement.devices if arrangement.per_device else 1


def compiled(module: HloModule, arrangement: Arrangement, arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs of all devices, or the global ones, as the compiled program computes them."""
    if arrangement.devices == 1:
        return spmd.compile(module, devices=1).run(*arrays)
    options = CompileOptions(partitioned=arrangement.per_device or None)
    executable = spmd.compile(module, devices=arrangement.devices, options=options)
    if not arrangement.per_device:
        return executable.run(*arrays)
    return joined(executable.run_devices(divided(arrays, arrangement.devices)))


def evaluated(
    module: HloModule,
    arrangement: Arrangement,
    arrays: Sequence[Array],
    tables: OpTables = REGISTERED,
) -> list[Array]:
    """Return the same by the reference evaluator."""
    speaks_of_device = arrangement.devices > 1 or is_partitioned(module, CompileOptions())
    if not (arrangement.per_device and speaks_of_device):
        return spmd.evaluate(module, *arrays, tables=tables)
    return joined(spmd.evaluate_partitions(module, divided(arrays, arrangement.devices), tables))


def divided(arrays: Sequence[Array], devices: int) -> list[list[Array]]:
    each = len(arrays) // devices
    return [list(arrays[k * each : (k + 1) * each]) for k in range(devices)]


def joined(devices: Sequence[Sequence[Array]]) -> list[Array]:
    return [array for own in devices for array in own]


def expected(path: Path, shapes: Sequence[ArrayShape], outputs: Sequence[Array]) -> list[Expected]:
    """Return XLA's outputs; those of bounded size, which it gives at the bound, with the sizes of ``outputs``.

    XLA packs what there is of a bounded array at the beginning of its buffer.
    """
    stored = StoredArrays(path)
    found = []
    for k, (shape, output) in enumerate(zip(shapes, outputs, strict=True)):
        values = from_storage(stored[f"out{k}"], shape, f"out{k}")
        if any(shape.dynamic):
            values = values.reshape(-1)[: output.size].reshape(output.shape)
        tolerance = default_tolerance(shape.element_type, values)
        found.append(Expected(f"out{k}", shape, values, tolerance))
    return found


def compared(
    module: HloModule,
    arrangement: Arrangement,
    arrays: Sequence[Array],
    outputs: Sequence[Array],
    wanted: Sequence[Expected],
) -> dict[str, Any]:
    """Return the verdict, and where outputs differ the reason: rounding, a free choice, or how far they are off."""
    checks = [check_output(got, want) for got, want in zip(outputs, wanted, strict=True)]
    if all(check.ok for check in checks):
        return {"verdict": "agrees", "reason": ""}
    try:
        reference = evaluated(module, arrangement, arrays)
        again = [replace(w, values=v) for w, v in zip(wanted, reference, strict=True)]
        worst = max(check_output(a, b).of_tolerance for a, b in zip(outputs, again, strict=True))
    except Exception as error:  # noqa: BLE001 - reported beside the difference
        return {"verdict": "differs", "reason": f"{off(checks)}; the evaluator: {error}"[:300]}
    if worst <= 1 and (choice := allowed(module, outputs, wanted)):
        return {"verdict": "left to the implementation", "reason": choice}

    def sample(noise: RoundingNoise | None) -> list[Array]:
        tables = REGISTERED if noise is None else noise.tables()
        return evaluated(module, arrangement, arrays, tables)

    judged = judge_rounding(
        outputs,
        wanted,
        checks,
        sample,
        excess=True,
        seconds=JUDGE_SECONDS,
        show=lambda _: None,
    )
    reason = f"{off(checks)} ({worst:.3g} to the evaluator)"
    if all(check.ok for check in judged.checks):
        return {"verdict": "agrees but for rounding", "reason": reason}
    return {"verdict": "differs", "reason": reason}


def allowed(module: HloModule, outputs: Sequence[Array], wanted: Sequence[Expected]) -> str:
    """Return the reason why XLA's outputs may be others than ``outputs``, which are as defined; empty without one."""
    if all(x.shape == want.values.shape for x, want in zip(outputs, wanted, strict=True)):
        found = [compare_elements(x, want) for x, want in zip(outputs, wanted, strict=True)]
        agreeing = [np.asarray(one.difference <= one.limit) for one in found]
        if reason := nan_choice(module, outputs, agreeing):
            return reason
    return free_choice(module)


def off(checks: Sequence[OutputCheck]) -> str:
    number, worst = max(enumerate(checks), key=lambda one: one[1].of_tolerance)
    bad = sum(check.verdict is Verdict.DIFFERS for check in checks)
    return f"{bad} of {len(checks)} outputs, out{number} by {worst.of_tolerance:.3g} of tolerance"


def kind_of(kind: PrimitiveType) -> str:
    """Return the name of a type that NumPy's files lack; empty for others."""
    dtype = np.dtype(kind.numpy)
    return "" if dtype.isbuiltin == 1 else dtype.name


if __name__ == "__main__":
    serve(answer)
