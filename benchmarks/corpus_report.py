"""Compare this project with XLA on a folder of JAX cases: numbers right, flops, shards and memory.

    python -m benchmarks.corpus_report CORPUS [--only REGEX] [--mpirun] [--markdown FILE] [--json FILE]

Per case (a folder with module.hlo, inputs.npz, expected.npz, case.json, peer.hlo): the worst output error over its
tolerance on loopback devices and, with --mpirun, on that many MPI ranks, and whether both give the same bits; flops
per device over the same counter's figure for XLA's own program; (arguments + temp) bytes and bytes on the wire per
device over XLA's; whether parameter and output tiles have the sizes that the case's PartitionSpecs imply. A case
without stored inputs runs on inputs from a seed, so that only bits are compared. Exits 1 when a case fails a bound of
``BOUNDS``.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, leaves
from spmd.text.parser import parse_module

#: Most that a case may have: error over tolerance, flops and memory over XLA's.
BOUNDS = {"error": 1.0, "flops": 1.1, "memory": 1.5}


@dataclass(frozen=True)
class Row:
    """One case's figures; None where it was not measured, ``problem`` where it did not run.

    ``alike``: whether MPI ranks gave the bits that loopback devices gave.
    """

    name: str
    devices: int
    loopback: float | None
    mpi: float | None
    alike: bool | None
    flops: float | None
    memory: float | None
    wire: float | None
    tiles: str
    problem: str = ""

    def failures(self) -> list[str]:
        found = [self.problem] if self.problem else []
        for kind, values in (
            ("error", (self.loopback, self.mpi)),
            ("flops", (self.flops,)),
            ("memory", (self.memory,)),
        ):
            found += [f"{kind} {v:.2f}" for v in values if v is not None and not v <= BOUNDS[kind]]
        found += ["mpirun differs from loopback"] if self.alike is False else []
        return found + ([self.tiles] if self.tiles != "as specified" else [])


def measure(case: Path, mpirun: bool) -> Row:
    about = json.loads((case / "case.json").read_text())
    devices = about["num_partitions"]
    try:
        statistics = spmd_json(
            ["stats", str(case / "module.hlo"), "--devices", str(devices), "--json"]
        )
        with tempfile.TemporaryDirectory() as folder:
            here, there = Path(folder) / "loopback.npz", Path(folder) / "mpi.npz"
            local = [sys.executable, "-m", "launch"]
            loopback = worst_error(case, local, ["--devices", str(devices)], here)
            job = [sys.executable, "-m", "launch.mpirun", "-n", str(devices), "--", "-m", "launch"]
            mpi = worst_error(case, job, [], there) if mpirun else None
            alike = same_bits(here, there) if mpirun else None
    except RuntimeError as error:
        return Row(
            case.name, devices, None, None, None, None, None, None, "as specified", str(error)
        )
    peer = parse_module((case / "peer.hlo").read_text())
    memory = about["peer"]["memory"]
    peer_wire = about["peer"]["collectives"]["total"]["wire_bytes"]
    xla_bytes = memory["argument_size_in_bytes"] + memory["temp_size_in_bytes"]
    ours = statistics["memory"]["arguments"] + statistics["memory"]["temp"]
    return Row(
        case.name,
        devices,
        loopback,
        mpi,
        alike,
        statistics["flops"] / max(module_cost(peer).flops, 1),
        ours / xla_bytes,
        statistics["wire_bytes"] / peer_wire if peer_wire else None,
        tile_mismatch(case, about),
    )


def spmd_json(arguments: list[str], launcher: list[str] | None = None) -> dict[str, Any]:
    command = [*(launcher or [sys.executable, "-m", "launch"]), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    lines = done.stdout.strip().splitlines()
    if done.returncode not in (0, 1) or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:150])
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def worst_error(case: Path, launcher: list[str], extra: list[str], outputs: Path) -> float | None:
    """Run a case, writing ``outputs``: largest |got - want| over its tolerance, over all outputs.

    None where the case stores no inputs and runs on others.
    """
    arguments = ["run", str(case / "module.hlo"), "--json", "--outputs", str(outputs), *extra]
    inputs = case / "inputs.npz"
    if not inputs.exists():
        spmd_json([*arguments, "--seed", "0"], launcher)
        return None
    expected = str(case / "expected.npz")
    outcome = spmd_json([*arguments, "--expect", expected, "--inputs", str(inputs)], launcher)
    return float(max(output["of_tolerance"] for output in outcome["outputs"]))


def same_bits(a: Path, b: Path) -> bool:
    """Return whether two files hold the same arrays, bit for bit."""
    with np.load(a) as left, np.load(b) as right:
        return list(left) == list(right) and all(
            left[name].dtype == right[name].dtype
            and left[name].shape == right[name].shape
            and left[name].tobytes() == right[name].tobytes()
            for name in left
        )


def tile_mismatch(case: Path, about: dict[str, Any]) -> str:
    """The first parameter or bound output whose tile is not what its PartitionSpec implies."""
    text = (case / "module.hlo").read_text()
    import spmd

    module: HloModule = spmd.partition(parse_module(text), about["num_partitions"])
    axes = dict(zip(about["mesh"]["axes"], about["mesh"]["shape"], strict=True))
    for argument, parameter in zip(about["args"], module.entry.parameters, strict=True):
        if parameter.dims != expected_tile(argument["shape"], argument["spec"], axes):
            return f"parameter {argument['name']} is {parameter.shape}"
    if "FuncResultSharding" not in text:
        return "as specified"
    outputs = [
        shape for _, shape in leaves(module.entry.root.shape) if isinstance(shape, ArrayShape)
    ]
    for output, shape in zip(about["outputs"], outputs, strict=True):
        if shape.dims != expected_tile(output["shape"], output["spec"], axes):
            return f"output {output['name']} is {shape}"
    return "as specified"


def expected_tile(shape: list[int], spec: str, axes: dict[str, int]) -> tuple[int, ...]:
    """Tile sizes of ``shape`` under the text of a PartitionSpec, e.g. P('data', None) or P(('x', 'y'),)."""
    inner = re.sub(r"^\w+\(|\)$", "", spec)
    entries = re.findall(r"\((?:[^()]*)\)|'[^']*'|None", inner)
    shards = [
        math.prod(axes[name] for name in re.findall(r"'([^']*)'", entry)) for entry in entries
    ]
    shards += [1] * (len(shape) - len(shards))
    return tuple(-(-n // s) for n, s in zip(shape, shards, strict=True))


def format_table(rows: list[Row]) -> str:
    lines = [
        (
            "| case | devices | error/tolerance, loopback | mpirun | same bits | flops/XLA | (args+temp)/XLA "
            "| wire bytes/XLA | tiles |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            row.name,
            str(row.devices),
            *map(_number, (row.loopback, row.mpi)),
            "-" if row.alike is None else "yes" if row.alike else "no",
            *map(_number, (row.flops, row.memory, row.wire)),
        ]
        lines.append(f"| {' | '.join(cells)} | {row.problem or row.tiles} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--mpirun", action="store_true", help="also run each case on MPI ranks")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    cases = [
        p.parent
        for p in sorted(options.corpus.glob("*/case.json"))
        if re.search(options.only, p.parent.name)
    ]
    rows = []
    for case in cases:
        rows.append(measure(case, options.mpirun))
        print(f"{case.name:30s} {'; '.join(rows[-1].failures()) or 'ok'}", flush=True)
    table = format_table(rows)
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    failing = sum(bool(row.failures()) for row in rows)
    print(f"{len(rows) - failing} of {len(rows)} cases within bounds")
    return 1 if failing or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
