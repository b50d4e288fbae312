"""Results of the zoo: one row for each program and number of devices, as a line of a table, and their summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing.turns import geometric_mean

#: Programs that take XLA CPU less are small: their steps are compared apart from those of the others.
SMALL_MS = 30.0

HEADER = (
    f"{'program':28s} {'dev':>3s} {'instr':>6s} {'compile s':>9s} {'XLA s':>6s} {'step ms':>8s} "
    f"{'XLA ms':>8s} {'sent KB':>8s} {'XLA KB':>8s} {'mem KB':>8s} {'XLA KB':>8s}  verdict"
)


@dataclass(frozen=True)
class Row:
    """Result of one program on one number of devices; figures are missing where it did not run.

    `outcome`: agrees, rounding (the program amplifies it), differs, refused, crashed, or JAX (which cannot build it).
    `said`: why it is not `agrees`. `ranks`: what came of MPI ranks, empty if they did not run.
    """

    program: str
    devices: int
    outcome: str
    said: str
    figures: dict[str, float]
    ranks: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome in ("agrees", "rounding") and self.ranks in ("", "same bits")

    @property
    def verdict(self) -> str:
        return f"{self.outcome}: {self.said}" if self.said else self.outcome

    def ratio(self, key: str) -> float | None:
        """Return the figure over XLA CPU's; None where one of them is missing or zero."""
        mine, peer = self.figures.get(key), self.figures.get(f"xla_{key}")
        return mine / peer if mine and peer else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def row_of(case: Path, program: str, devices: int) -> Row:
    """Row of a case on which `ours` has run, and perhaps `ranks`."""
    described = json.loads((case / "case.json").read_text())
    found = json.loads((case / "ours.json").read_text())
    xla = {f"xla_{key}": value for key, value in described["xla"].items()}
    for kind in ("refused", "crashed"):
        if kind in found:
            return Row(program, devices, kind, found[kind].strip().splitlines()[-1], xla)
    figures = {k: v for k, v in found["figures"].items() if v is not None} | xla
    outcome, said = verdict_of(found["outputs"])
    path = case / "ranks.json"
    if not path.exists():
        return Row(program, devices, outcome, said, figures)
    ranks = json.loads(path.read_text())
    if "step_ms" in ranks:
        figures["ranks_step_ms"] = ranks["step_ms"]
    on_ranks = ranks.get("ranks") or f"crashed: {ranks['crashed']}"
    return Row(program, devices, outcome, said, figures, on_ranks)


def verdict_of(checks: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the outcome of a program's outputs, and what is said of the worst of those that do not agree."""
    for outcome in ("differs", "rounding"):
        found = [check for check in checks if check["verdict"] == outcome]
        if found:
            worst = max(found, key=lambda check: float(check["of_tolerance"]))
            where = f", at {worst['amplified_at']}" if worst["amplified_at"] else ""
            count = f"{len(found)} of {len(checks)} outputs"
            return (
                outcome,
                f"{count}, {worst['name']} {worst['of_tolerance']:.3g} of tolerance{where}",
            )
    return "agrees", ""


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
    ranks = f"; ranks: {row.ranks}" if row.ranks else ""
    return " ".join(columns) + f"  {row.verdict[:160]}{ranks[:160]}"


def summary(rows: Sequence[Row]) -> list[str]:
    """Lines on how many programs pass, by number of devices, and on how figures compare with XLA CPU's."""
    lines = [f"{sum(row.passed for row in rows)} of {len(rows)} pass"]
    for devices in sorted({row.devices for row in rows}):
        here = [row for row in rows if row.devices == devices]
        plural = "" if devices == 1 else "s"
        lines.append(f"{devices} device{plural}: {counted(row.outcome for row in here)}")
        if any(row.ranks for row in here):
            kinds = counted(row.ranks.split(":")[0].split(" in ")[0] or "not run" for row in here)
            lines.append(f"{devices} MPI rank{plural}: {kinds}")
    small = [row for row in rows if row.figures.get("xla_step_ms", 0.0) < SMALL_MS]
    large = [row for row in rows if row.figures.get("xla_step_ms", 0.0) >= SMALL_MS]
    lines += compared(f"step time over XLA CPU's (below {SMALL_MS:g} ms)", small, "step_ms")
    lines += compared(f"step time over XLA CPU's ({SMALL_MS:g} ms or more)", large, "step_ms")
    lines += compared("compile time over XLA CPU's", rows, "compile_s")
    lines += compared("processor time of compilation over XLA CPU's", rows, "compile_cpu_s")
    lines += compared("memory over XLA CPU's", rows, "memory")
    return lines


def counted(kinds: Iterable[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in Counter(kinds).most_common())


def compared(what: str, rows: Sequence[Row], key: str, worst: int = 3) -> list[str]:
    """Return a line with the geometric mean and the largest ratios to XLA CPU's figure; no line without a ratio."""
    pairs = [(ratio, row) for row in rows if (ratio := row.ratio(key)) is not None]
    if not pairs:
        return []
    mean = geometric_mean(ratio for ratio, _ in pairs)
    pairs.sort(key=lambda pair: -pair[0])
    largest = ", ".join(
        f"{ratio:.2f} ({row.program} on {row.devices})" for ratio, row in pairs[:worst]
    )
    return [f"{what}: geometric mean of {len(pairs)} rows {mean:.3f}, largest {largest}"]
