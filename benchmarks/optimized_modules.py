"""Run programs that XLA has optimized and compare what they compute with the expected outputs.

    python -m benchmarks.optimized_modules CORPUS [--modules FOLDER] [--only REGEX]

Per case (a folder with case.json, expected.npz and, unless its inputs are drawn from a seed, inputs.npz): one device's
module as XLA has compiled it is run on loopback devices, and its outputs are compared with the case's. The module is
peer.hlo, XLA CPU's, or FOLDER/CASE.hlo: XLA:GPU's, for example. Cases without such a module are left out, by name.
If XLA is known to partition a case wrongly (its expected outputs are those of one device), the module's outputs are
compared with those of the reference evaluator instead, which follows the same module.
Prints each case's largest error over its tolerance, and a last line "N of M agree"; exits 1 unless all agree.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case_inputs import case_inputs
from launch.checks.expect import Expected, check_output, read_expected
from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.arrays.sharded_arrays import gather as gather_tiles
from spmd.device import IotaTile
from spmd.errors import SpmdError
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import HloModule, Stage
from spmd.shape import TupleShape, as_array, leaves
from spmd.sharding import HloSharding, SubgroupType, TileAssignment
from spmd.text.sources.load import load

Array = np.ndarray[Any, np.dtype[Any]]

#: The source of a case's expected outputs if XLA's program for several devices computes something else.
ONE_DEVICE = "XLA CPU, 1 device"


@dataclass(frozen=True)
class Row:
    """One case: error over tolerance of its worst output, seconds of reading, compiling and running."""

    name: str
    devices: int
    instructions: int
    error: float
    seconds: float
    problem: str = ""

    @property
    def agrees(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        return (
            f"{self.name:30s} {self.devices:7d} {self.instructions:12d} "
            f"{self.error:15.3g} {self.seconds:8.1f}  {self.problem or 'agrees'}"
        )


HEADER = f"{'case':30s} devices instructions error/tolerance  seconds"


def measure(case: Path, path: Path) -> Row:
    """Run the module at ``path`` on the inputs of ``case``; a SpmdError is the row's problem."""
    about = json.loads((case / "case.json").read_text())
    devices, start, count = about["num_partitions"], time.perf_counter(), 0
    try:
        module = load(path)
        count = sum(len(computation) for computation in module.computations)
        error, problem = verdict(case, about, module, devices)
    except SpmdError as refusal:
        text = " ".join(str(refusal).split())[:300]
        return Row(case.name, devices, count, math.nan, time.perf_counter() - start, text)
    return Row(case.name, devices, count, error, time.perf_counter() - start, problem)


def verdict(
    case: Path, about: Mapping[str, Any], module: HloModule, devices: int
) -> tuple[float, str]:
    """Return the largest error over tolerance of all outputs, and what is wrong with them ("" if nothing is)."""
    state_shardings(module, about)
    executable = compile_module(module, devices, CompileOptions(partitioned=True))
    shapes = [boundary.shape for boundary in executable.inputs]
    arrays = executable.put(case_inputs(case, about, shapes))
    tiles = [[np.array(array) for array in own] for own in arrays.tiles]
    outputs = executable.get(executable.run(arrays))
    wanted = read_expected(case / "expected.npz", [b.shape for b in executable.outputs])
    error = worst_error(outputs, wanted)
    if error <= 1.0 and about["expected_from"] != ONE_DEVICE:
        return error, ""
    evaluated = zip(*evaluate_partitions(module, tiles), strict=True)
    wanted = [
        replace(w, values=gather_tiles(own, b.sharding, b.shape), positions=None)
        for w, own, b in zip(wanted, evaluated, executable.outputs, strict=True)
    ]
    evaluator_error = worst_error(outputs, wanted)
    if about["expected_from"] == ONE_DEVICE:
        return evaluator_error, "" if evaluator_error <= 1.0 else "DIFFERS from the evaluator"
    follows = f"{evaluator_error:.3g} of tolerance from what the evaluator makes of the module"
    return error, f"DIFFERS, {follows}"


def worst_error(outputs: Sequence[Array], wanted: Sequence[Expected]) -> float:
    checks = [check_output(got, want) for got, want in zip(outputs, wanted, strict=True)]
    return max((check.of_tolerance for check in checks), default=0.0)


# ---- how global arrays are shared out: XLA's modules do not say it of their results
def state_shardings(module: HloModule, about: Mapping[str, Any]) -> None:
    """Write the case's shardings of arguments and outputs onto the entry's parameters and root.

    XLA may have replicated an output: its tile then has all of its sizes.
    """
    module.stage = max(module.stage, Stage.PARTITIONED)
    for parameter, argument in zip(module.entry.parameters, about["args"], strict=True):
        parameter.sharding = sharding_of(argument, about["mesh"])
    root = module.entry.root
    tiles = [as_array(shape).dims for _, shape in leaves(root.shape)]
    outputs = tuple(
        HloSharding.replicated()
        if tile == tuple(output["shape"])
        else sharding_of(output, about["mesh"])
        for tile, output in zip(tiles, about["outputs"], strict=True)
    )
    is_tuple = isinstance(root.shape, TupleShape)
    root.sharding = HloSharding.tuple_of(outputs) if is_tuple else outputs[0]


def sharding_of(described: Mapping[str, Any], mesh: Mapping[str, Any]) -> HloSharding:
    """Return the sharding on ``mesh`` that the text of a PartitionSpec means: P('x', None), P(('x', 'y'),)."""
    inner = re.sub(r"^\w+\(|\)$", "", described["spec"])
    entries = re.findall(r"\((?:[^()]*)\)|'[^']*'|None", inner)
    axes = [[mesh["axes"].index(name) for name in re.findall(r"'([^']*)'", e)] for e in entries]
    axes += [[] for _ in range(len(described["shape"]) - len(axes))]
    return sharding_along(axes, mesh)


def sharding_along(axes: Sequence[Sequence[int]], mesh: Mapping[str, Any]) -> HloSharding:
    """Return the sharding of an array whose dimension d is cut along the mesh axes ``axes[d]``."""
    sizes = mesh["shape"]
    used = [axis for group in axes for axis in group]
    unused = [axis for axis in range(len(sizes)) if axis not in used]
    if not used:
        return HloSharding.replicated()
    dims = [math.prod(sizes[axis] for axis in group) for group in axes]
    copies = math.prod(sizes[axis] for axis in unused)
    devices = np.asarray(mesh["device_ids"]).reshape(sizes).transpose([*used, *unused]).reshape(-1)
    tile_dims = (*dims, copies) if copies > 1 else tuple(dims)
    subgroups = (SubgroupType.REPLICATED,) if copies > 1 else ()
    tiles = TileAssignment(IotaTile.of(tile_dims), tuple(int(device) for device in devices))
    return HloSharding.tiled(tiles, subgroups)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--modules", type=Path, help="run FOLDER/CASE.hlo instead of peer.hlo")
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    options = parser.parse_args()
    cases = [path.parent for path in sorted(options.corpus.glob("*/case.json"))]
    rows: list[Row] = []
    absent: list[str] = []
    print(HEADER)
    for case in cases:
        folder = options.modules
        path = folder / f"{case.name}.hlo" if folder else case / "peer.hlo"
        if not re.search(options.only, case.name):
            continue
        if not path.exists():
            absent.append(case.name)
            continue
        rows.append(measure(case, path))
        print(rows[-1], flush=True)
    if absent:
        print(f"without a module: {', '.join(absent)}")
    agreeing = sum(row.agrees for row in rows)
    print(f"{agreeing} of {len(rows)} agree")
    return 0 if rows and agreeing == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
