"""Bytes on the wire of one device beside XLA CPU's, case by case, and what reduce-scatter has to do with it.

    python -m benchmarks.partitioning.wire_report CORPUS [--only REGEX] [--markdown FILE] [--json FILE]

Needs module.hlo, peer.hlo and case.json of each case and runs none of them. Per case: who chose the collectives (the
partitioner, or the program itself in manual regions); wire bytes, ours and XLA's; our flops over XLA's and our
(arguments + temp) bytes over XLA's, by one counter each; whether the case counts (``MAX_FLOPS``, ``MAX_MEMORY``); and
the wire ratio once more with each of our reduce-scatters priced as the all-reduce that XLA CPU would make of it (its
back end has no reduce-scatter creator): what is lost by that is the reduce-scatters' part of the gain. The part is an
upper bound where an all-gather follows, since an all-reduce would have saved that.

Exits 1 when a bound is broken: bytes where XLA sends none, a manual case above XLA, a partitioner's case that does not
count or lies above ``MAX_EACH``, their geometric mean above ``MAX_MEAN``.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from benchmarks.timing.turns import geometric_mean
from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.compile import build_executable
from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule
from spmd.hlo.collective_opcodes import KIND
from spmd.text.parser import parse_module

MAX_FLOPS = 1.05
MAX_MEMORY = 1.1
MAX_EACH = 1.05
MAX_MEAN = 0.90
#: Shares are compared as printed: 1.0004 is not above 1.
ROUNDING = 5e-4


class Chooser(Enum):
    """The side that decided on a case's collectives."""

    PARTITIONER = "partitioner"
    PROGRAM = "manual"
    NOBODY = "none"  # neither side communicates


@dataclass(frozen=True, slots=True)
class Row:
    """One case. ``wire``, ``peer_wire`` and ``scattered`` (the part that reduce-scatters send) in bytes a device sends;
    ``flops`` and ``memory`` over XLA's.
    """

    name: str
    devices: int
    chooser: Chooser
    wire: float
    peer_wire: float
    scattered: float
    flops: float
    memory: float

    @property
    def ratio(self) -> float | None:
        """Ours over XLA's; None where XLA sends nothing."""
        return self.wire / self.peer_wire if self.peer_wire else None

    @property
    def ratio_as_all_reduce(self) -> float | None:
        """An all-reduce over n devices sends 2 (n-1)/n of its operand, a reduce-scatter half of that."""
        return (self.wire + self.scattered) / self.peer_wire if self.peer_wire else None

    @property
    def is_chosen(self) -> bool:
        return self.chooser is Chooser.PARTITIONER and self.peer_wire > 0

    @property
    def too_dear(self) -> list[str]:
        """Why the case does not count: it bought its bytes with work or memory."""
        found = []
        if self.flops > MAX_FLOPS + ROUNDING:
            found.append(f"flops {self.flops:.2f}")
        if self.memory > MAX_MEMORY + ROUNDING:
            found.append(f"memory {self.memory:.2f}")
        return found

    @property
    def broken(self) -> list[str]:
        """The bounds that this case breaks."""
        if not self.peer_wire:
            return [f"{self.wire:.0f} bytes where XLA sends none"] if self.wire else []
        assert self.ratio is not None
        limit = MAX_EACH if self.is_chosen else 1.0
        found = [f"wire {self.ratio:.3f}"] if self.ratio > limit + ROUNDING else []
        return found + (self.too_dear if self.is_chosen else [])


def measure(case: Path) -> Row:
    about = json.loads((case / "case.json").read_text())
    devices: int = about["num_partitions"]
    logical = parse_module((case / "module.hlo").read_text())
    *_, (_, compilation) = stages(logical, devices, CompileOptions())
    memory = build_executable(compilation.module, check=False).stats
    ours = module_cost(compilation.module)
    peer, peer_memory = about["peer"], about["peer"]["memory"]
    peer_bytes = peer_memory["argument_size_in_bytes"] + peer_memory["temp_size_in_bytes"]
    scatter = ours.collectives.get("reduce-scatter")
    assert compilation.partitioner is not None
    chosen = any(
        collective.opcode in KIND and source.opcode not in KIND
        for collective, source in compilation.partitioner.report.op_collectives.items()
    )
    chosen = chosen or bool(compilation.partitioner.report.reshards)
    return Row(
        name=case.name,
        devices=devices,
        chooser=_chooser(chosen, logical),
        wire=ours.wire_bytes,
        peer_wire=peer["collectives"]["total"]["wire_bytes"],
        scattered=scatter.wire_bytes if scatter else 0.0,
        flops=ours.flops / max(module_cost(parse_module((case / "peer.hlo").read_text())).flops, 1),
        memory=(memory.arguments + memory.temp) / max(peer_bytes, 1),
    )


def _chooser(chosen: bool, logical: HloModule) -> Chooser:
    """Manual only where every collective comes from the program."""
    if chosen:
        return Chooser.PARTITIONER
    written = any(instruction.opcode in KIND for instruction in logical.all_instructions())
    return Chooser.PROGRAM if written else Chooser.NOBODY


def mean_of(ratios: Sequence[float | None]) -> float:
    """The geometric mean of those that there are; a ratio of zero counts as one in a million."""
    return geometric_mean(max(ratio, 1e-6) for ratio in ratios if ratio is not None)


@dataclass(frozen=True, slots=True)
class Summary:
    """The partitioner's cases that count: their mean ratio, and the same without reduce-scatters."""

    counted: int
    chosen: int
    mean: float
    mean_as_all_reduce: float

    @property
    def scatter_share(self) -> float:
        """Part of the (logarithmic) gain that goes away without reduce-scatters."""
        gain, rest = -math.log(self.mean), -math.log(self.mean_as_all_reduce)
        return 1 - rest / gain if gain > 0 else 0.0


def summarize(rows: Sequence[Row]) -> Summary:
    chosen = [row for row in rows if row.is_chosen]
    counted = [row for row in chosen if not row.too_dear]
    return Summary(
        len(counted),
        len(chosen),
        mean_of([row.ratio for row in counted]),
        mean_of([row.ratio_as_all_reduce for row in counted]),
    )


def format_table(rows: Sequence[Row]) -> str:
    lines = [
        (
            "| case | devices | chosen by | wire bytes | XLA's | ratio | without reduce-scatter "
            "| flops/XLA | (args+temp)/XLA | counts |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        counts = "-"
        if row.is_chosen:
            counts = "no: " + ", ".join(row.too_dear) if row.too_dear else "yes"
        cells = [
            row.name,
            str(row.devices),
            row.chooser.value,
            f"{row.wire:.0f}",
            f"{row.peer_wire:.0f}",
            _number(row.ratio),
            _number(row.ratio_as_all_reduce),
            _number(row.flops),
            _number(row.memory),
            counts,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def failures(rows: Sequence[Row], summary: Summary) -> list[str]:
    found = [f"{row.name}: {', '.join(row.broken)}" for row in rows if row.broken]
    if summary.counted and summary.mean > MAX_MEAN:
        found.append(f"geometric mean {summary.mean:.3f} is above {MAX_MEAN}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    cases = [
        path.parent
        for path in sorted(options.corpus.glob("*/case.json"))
        if re.search(options.only, path.parent.name)
    ]
    rows = [measure(case) for case in cases]
    table = format_table(rows)
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if options.json:
        found = [asdict(row) | {"chooser": row.chooser.value} for row in rows]
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    summary = summarize(rows)
    print(
        f"{summary.counted} of {summary.chosen} cases chosen by the partitioner count: geometric mean "
        f"{summary.mean:.3f} of XLA's wire bytes, {summary.mean_as_all_reduce:.3f} with reduce-scatters priced as "
        f"all-reduces ({summary.scatter_share:.0%} of the gain)"
    )
    broken = failures(rows, summary)
    for line in broken:
        print(line)
    return 1 if broken or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
