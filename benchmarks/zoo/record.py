"""Record a case of the zoo among the cases of the tests, with tolerances that the judgement of its outputs implies.

    python -m benchmarks.zoo.record CASES/NAME/DEVICES TARGET/NAME

The case is one that `python -m benchmarks.zoo --work CASES` has left. TARGET/NAME gets module.hlo, inputs.npz,
expected.npz (JAX's outputs, sharded, or on one device where XLA CPU cannot compile for several) and case.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import spmd
from benchmarks.zoo.judge import RUNS, allowed, spread_of
from launch.checks.expect import default_tolerance
from launch.data.inputs import Array, read_arrays, to_storage
from launch.data.npz import StoredArrays
from launch.entry import Entry
from spmd.shape import ArrayShape


def record(case: Path, target: Path) -> None:
    text = (case / "module.hlo").read_text()
    entry = Entry.of_module(spmd.parse(text))
    described = json.loads((case / "case.json").read_text())
    runs = [read_arrays(case / "jax.npz", name, entry.outputs) for name in RUNS]
    names = [leaf["path"] for leaf in described["outputs"]]
    about = {
        "name": target.name,
        "note": f"benchmarks/zoo: {case.parent.name}",
        "jax": described["jax"],
        "num_partitions": described["devices"],
        "num_replicas": 1,
        "expected_from": f"XLA CPU, {'N devices' if described['xla'] else '1 device'}",
        "args": [shape_json(shape) for shape in entry.inputs],
        "outputs": [
            {"name": name, **shape_json(shape), **tolerance_json(shape, each)}
            for name, shape, *each in zip(names, entry.outputs, *runs, strict=True)
        ],
    }
    target.mkdir(parents=True, exist_ok=True)
    (target / "module.hlo").write_text(text)
    save(target / "inputs.npz", "arg", list(StoredArrays(case / "inputs.npz").values()))
    save(target / "expected.npz", "out", [to_storage(x) for x in runs[0]])
    (target / "case.json").write_text(one_line_each(about))


def one_line_each(about: dict[str, object]) -> str:
    """Return `about` as JSON with a line for each array that its lists describe."""
    lines = []
    for key, value in about.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        lines.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def shape_json(shape: ArrayShape) -> dict[str, object]:
    return {"shape": list(shape.dims), "dtype": shape.element_type.value}


def tolerance_json(shape: ArrayShape, runs: list[Array]) -> dict[str, float]:
    default = default_tolerance(shape.element_type, runs[0])
    atol = default.atol + allowed(spread_of(runs, shape), runs[0], shape)
    return {"atol": atol, "rtol": default.rtol}


def save(path: Path, prefix: str, arrays: list[Array]) -> None:
    named = {f"{prefix}{k}": array for k, array in enumerate(arrays)}
    np.savez_compressed(path, **named)  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", type=Path, metavar="CASES/NAME/DEVICES")
    parser.add_argument("target", type=Path, metavar="TARGET/NAME")
    options = parser.parse_args()
    record(options.case, options.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
