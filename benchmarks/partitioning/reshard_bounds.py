"""Bytes that every reshard receives over the least that any program must, over folders of modules.

    python -m benchmarks.partitioning.reshard_bounds PATH... [--least BYTES] [--ratio R] [--all] [--json FILE]

PATH is a module (.hlo or .pb), a case (a folder with module.hlo, and case.json for its number of devices), or a folder
of these. One line per module: how many reshards receive more than --least bytes on a device, how much they receive in
all, and over their bounds; then each reshard above --ratio, with its op, both states and the steps taken (--all: each
reshard). Modules that are partitioned already have no reshards. Exits 1 when a reshard exceeds the ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import spmd
from launch.options import CompileOptions
from launch.pipeline import is_partitioned
from partitioner.report import ReshardRecord
from partitioner.spmd_partitioner import SpmdPartitioner, partitioned
from spmd.text.stage import device_count


@dataclass(frozen=True)
class Row:
    """One value brought from one state to another. ``kind``: the collectives that do it, in order."""

    module: str
    value: str
    op: str
    opcode: str
    purpose: str
    shape: str
    source: str
    target: str
    kind: str
    received: float
    bound: float

    @property
    def ratio(self) -> float:
        return self.received / self.bound if self.bound > 0 else float("inf")

    def __str__(self) -> str:
        return (
            f"  {self.ratio:5.2f}  {self.received:12,.0f} / {self.bound:12,.0f}  {self.op} ({self.opcode}) "
            f"{self.purpose} {self.value} {self.shape}: {self.source} -> {self.target} by {self.kind}"
        )


def rows_of(name: str, driver: SpmdPartitioner, least_bytes: float) -> Iterator[Row]:
    """The reshards of a partitioning that are still in its result and receive more than ``least_bytes``."""
    kept = set(driver.result.all_instructions())
    for record in driver.report.reshards:
        if record.received > least_bytes and any(c in kept for c in record.collectives):
            yield row_of(name, driver, record)


def row_of(name: str, driver: SpmdPartitioner, record: ReshardRecord) -> Row:
    return Row(
        name,
        record.value.name,
        record.serving.name,
        record.serving.opcode.value,
        record.purpose.value,
        str(record.shape.without_layout()),
        str(record.source.sharding(driver.axes)),
        str(record.target.sharding(driver.axes)),
        ", ".join(c.opcode.value for c in record.collectives),
        record.received,
        record.bound,
    )


def modules_in(path: Path) -> Iterator[tuple[str, Path, int | None]]:
    """(name, file, number of devices where a case.json says it)."""
    if path.is_file():
        yield path.stem, path, None
    elif (path / "module.hlo").exists():
        about = path / "case.json"
        devices = json.loads(about.read_text())["num_partitions"] if about.exists() else None
        yield path.name, path / "module.hlo", devices
    else:
        for child in sorted(path.iterdir()):
            if child.suffix in (".hlo", ".pb") or (child / "module.hlo").exists():
                yield from modules_in(child)


def report(name: str, devices: int, rows: list[Row], ratio: float, every: bool) -> None:
    over = sum(row.ratio > ratio for row in rows)
    print(
        f"{name:44s} {devices:3d} devices  {len(rows):4d} reshards  {sum(r.received for r in rows):16,.0f} received  "
        f"{total_ratio(rows):5.3f} of the bounds  {over} over {ratio:g}",
        flush=True,
    )
    for row in sorted(rows, key=lambda row: -row.ratio):
        if every or row.ratio > ratio:
            print(row)


def total_ratio(rows: list[Row]) -> float:
    bound = sum(row.bound for row in rows)
    return sum(row.received for row in rows) / bound if bound else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--least", type=float, default=4096, metavar="BYTES")
    parser.add_argument("--ratio", type=float, default=1.5)
    parser.add_argument("--all", action="store_true", help="print every reshard above --least")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    for path in options.paths:
        for name, file, devices in modules_in(path):
            module = spmd.load(str(file))
            if is_partitioned(module, CompileOptions()):
                print(f"{name:44s} is partitioned already: no reshards")
                continue
            count = devices or device_count(module)
            found = list(rows_of(name, partitioned(module, count), options.least))
            rows += found
            report(name, count, found, options.ratio, options.all)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    over = [row for row in rows if row.ratio > options.ratio]
    print(
        f"{len(rows)} reshards receive more than {options.least:g} bytes, {len(over)} of them over "
        f"{options.ratio:g} times their bound; all together {total_ratio(rows):.3f} of their bounds"
    )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
