"""Results of the zoo: one row for each program and number of devices, as a line of a table or of a page."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo.compare import LeafDifference, compare_leaf

#: A tolerance above this part of an output's largest element is marked in the table.
LOOSE = 1e-2

#: Runs of JAX, of which the first two are compared with.
RUNS = ("sharded", "unsharded", "nudged", "rounded")

HEADER = (
    f"{'program':28s} {'dev':>3s} {'instr':>6s} {'compile s':>9s} {'XLA s':>6s} {'step ms':>8s} "
    f"{'XLA ms':>8s} {'sent KB':>8s} {'XLA KB':>8s} {'mem KB':>8s} {'XLA KB':>8s}  verdict"
)


@dataclass(frozen=True)
class Row:
    """Result of one program on one number of devices; figures are missing where it did not run."""

    program: str
    devices: int
    verdict: str
    figures: dict[str, float]
    worst: str = ""
    of_tolerance: float = math.nan
    loose: int = 0
    ranks: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict == "agrees" and self.ranks in ("", "same bits")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def row_of(folder: Path, program: str, devices: int) -> Row:
    """Row of a case whose ours.json has been written."""
    case = json.loads((folder / "case.json").read_text())
    found = json.loads((folder / "ours.json").read_text())
    xla = {f"xla_{key}": value for key, value in case["xla"].items()}
    for kind in ("refused", "crashed"):
        if kind in found:
            said = found[kind].strip().splitlines()[-1]
            return Row(program, devices, f"{kind}: {said}", xla)
    differences = compare_case(folder)
    worst = _worst(differences)
    figures = {**{k: v for k, v in found.items() if v is not None}, **xla}
    if worst is None:
        return Row(program, devices, "agrees", figures)
    verdict = "agrees"
    if not worst.agrees:
        wrong = sum(not one.agrees for one in differences)
        verdict = f"differs: {wrong} of {len(differences)}, {worst.path} {worst.of_tolerance:.3g} of tolerance"
    loose = sum(one.looseness > LOOSE for one in differences)
    return Row(program, devices, verdict, figures, worst.path, worst.of_tolerance, loose)


def worst_of(folder: Path) -> LeafDifference | None:
    """Output of a case that differs most from JAX's; None where it has none."""
    return _worst(compare_case(folder))


def _worst(differences: list[LeafDifference]) -> LeafDifference | None:
    return max(differences, key=lambda one: one.of_tolerance, default=None)


def compare_case(folder: Path) -> list[LeafDifference]:
    case = json.loads((folder / "case.json").read_text())
    with np.load(folder / "outputs.npz") as got, np.load(folder / "jax.npz") as jax_runs:
        return [
            compare_leaf(
                leaf["path"] or "result",
                leaf["dtype"],
                got[f"out{k}"],
                [jax_runs[f"{run}{k}"] for run in case.get("runs", RUNS)],
            )
            for k, leaf in enumerate(case["outputs"])
        ]


def line_of(row: Row) -> str:
    def figure(key: str, width: int, digits: int, unit: float = 1.0) -> str:
        value = row.figures.get(key)
        return f"{'-':>{width}s}" if value is None else f"{value / unit:{width}.{digits}f}"

    columns = [
        f"{row.program:28s} {row.devices:3d}",
        figure("instructions", 6, 0),
        figure("compile_s", 9, 2),
        figure("xla_compile_s", 6, 2),
        figure("step_ms", 8, 2),
        figure("xla_step_ms", 8, 2),
        figure("wire_bytes", 8, 1, 1e3),
        figure("peer_wire_bytes", 8, 1, 1e3),
        figure("memory", 8, 1, 1e3),
        figure("xla_memory", 8, 1, 1e3),
    ]
    loose = f" ({row.loose} loose)" if row.loose else ""
    ranks = f"; ranks: {row.ranks}" if row.ranks else ""
    return " ".join(columns) + f"  {row.verdict[:160]}{loose}{ranks[:160]}"
