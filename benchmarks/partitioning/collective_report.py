"""Count a step's collectives and the bytes they send, beside XLA CPU's and beside the program as it was partitioned.

    python -m benchmarks.partitioning.collective_report CORPUS [--only REGEX] [--json FILE] [--splits MACHINE]

Needs module.hlo and case.json of each case and runs none of them. Per case: collectives executed in a step as the
partitioner made them, as they are scheduled, and in XLA's program; bytes that a device sends, before and after. Loops
count by their trips (one where these are not known, on both sides). --splits lists instead what it would gain on a
machine to do each product that waits for its collective in parts (windowed-einsum), and which of them are done so.

Exits 1 where a case executes more collectives than XLA's program, or sends more than it did partitioned.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from collectives.passes.windowed_einsum import WindowedEinsum
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.analysis.cost import CollectiveCost, module_cost
from spmd.text.parser import parse_module

#: Bytes are sums of floats.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """Collectives executed in a step by kind; wire: bytes that a device sends in a step."""

    name: str
    partitioned: dict[str, float]
    ours: dict[str, float]
    peer: dict[str, float]
    partitioned_wire: float
    wire: float

    @property
    def broken(self) -> list[str]:
        found = []
        if _total(self.ours) > _total(self.peer):
            found.append(f"{_total(self.ours):g} collectives, XLA {_total(self.peer):g}")
        if self.wire > self.partitioned_wire * (1 + ROUNDING):
            found.append(f"{self.wire:.0f} bytes sent, partitioned {self.partitioned_wire:.0f}")
        return found


def measure(case: Path) -> Row:
    about = json.loads((case / "case.json").read_text())
    module = parse_module((case / "module.hlo").read_text())
    found = {
        name: module_cost(compilation.module)
        for name, compilation in stages(module, about["num_partitions"], CompileOptions())
        if name in ("partitioned", "scheduled")
    }
    peer = about["peer"]["collectives"]["by_kind"]
    return Row(
        case.name,
        _executed(found["partitioned"].collectives),
        _executed(found["scheduled"].collectives),
        {kind: float(count["executed"]) for kind, count in sorted(peer.items())},
        found["partitioned"].wire_bytes,
        found["scheduled"].wire_bytes,
    )


def _executed(costs: Mapping[str, CollectiveCost]) -> dict[str, float]:
    return {kind: cost.executed for kind, cost in sorted(costs.items())}


def _total(counts: Mapping[str, float]) -> float:
    return sum(counts.values())


def _shown(counts: Mapping[str, float]) -> str:
    kinds = " + ".join(f"{count:g} {kind}" for kind, count in counts.items())
    return f"{_total(counts):g}" + (f" ({kinds})" if len(counts) > 1 else "")


def list_splits(cases: Sequence[Path], machine: str) -> None:
    split = WindowedEinsum(machine=machine)
    print("| case | product | whole us | in parts us | gain | |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        about = json.loads((case / "case.json").read_text())
        module = parse_module((case / "module.hlo").read_text())
        for name, compilation in stages(module, about["num_partitions"], CompileOptions()):
            if name == "optimized":
                for gain in split.savings(compilation.module).values():
                    seconds = (
                        f"{1e6 * gain.unsplit:.1f} | {1e6 * gain.parts:.1f} | {gain.share:.1%}"
                    )
                    done = "split" if gain.share >= split.min_gain else ""
                    print(f"| {case.name} | {gain.product} | {seconds} | {done} |", flush=True)
                break


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--splits", metavar="MACHINE", help="list what splitting products gains")
    options = parser.parse_args()
    cases = [
        path.parent
        for path in sorted(options.corpus.glob("*/case.json"))
        if re.search(options.only, path.parent.name)
    ]
    if options.splits:
        list_splits(cases, options.splits)
        return 0
    print("| case | partitioned | scheduled | XLA | bytes sent | partitioned | |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for case in cases:
        row = measure(case)
        rows.append(row)
        cells = [row.name, _shown(row.partitioned), _shown(row.ours), _shown(row.peer)]
        cells += [f"{row.wire:.0f}", f"{row.partitioned_wire:.0f}", "; ".join(row.broken)]
        print(f"| {' | '.join(cells)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    sums = [
        sum(_total(counts) for counts in side)
        for side in zip(*((row.partitioned, row.ours, row.peer) for row in rows), strict=True)
    ]
    bad = sum(bool(row.broken) for row in rows)
    print(
        f"{len(rows)} cases: {sums[0]:g} collectives partitioned, {sums[1]:g} scheduled, {sums[2]:g} in XLA; "
        f"{bad} fall short"
    )
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
