"""Try every pass on many random modules that must set it off.

    python -m tests.spmd.passes.triggers [--count 500] [--first 0] [--passes a,b] [--save DIR] [--json FILE]

Prints, for each pass: modules tried, how many it changed, how many failed (check.py says what is asked), on how many
outputs differed at all, the largest error over its tolerance, the most runs it took, milliseconds per module. Exits 1
where any failed. --save writes the modules that failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.spmd.passes.triggers.check import TriggerFailure, check_trigger
from tests.spmd.passes.triggers.registry import Trigger, pass_names, trigger_of


@dataclass
class Row:
    name: str
    modules: int = 0
    changed: int = 0
    failed: int = 0
    inexact: int = 0
    worst: float = 0.0
    runs: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        each = 1e3 * self.seconds / max(self.modules, 1)
        return (
            f"{self.name:40} {self.modules:7} {self.changed:7} {self.failed:6} {self.inexact:7} "
            f"{self.worst:10.2g} {self.runs:4} {each:8.1f}"
        )


HEADER = f"{'pass':40} {'modules':>7} {'changed':>7} {'failed':>6} {'inexact':>7} {'error/tol':>10} runs ms/module"


def measure(trigger: Trigger, seeds: range, save: Path | None) -> Row:
    row = Row(trigger.name)
    start = time.perf_counter()
    for seed in seeds:
        row.modules += 1
        try:
            outcome = check_trigger(trigger, seed)
        except TriggerFailure as failure:
            row.failed += 1
            print(f"{trigger.name} seed {seed}: {failure}", file=sys.stderr)
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                (save / f"{trigger.name}.{seed}.hlo").write_text(str(failure.module))
            continue
        row.changed += 1
        row.inexact += outcome.worst > 0
        row.worst = max(row.worst, outcome.worst)
        row.runs = max(row.runs, outcome.runs)
    row.seconds = time.perf_counter() - start
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500, help="modules per pass")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--passes", default="", help="only these")
    parser.add_argument("--save", type=Path, help="folder for the modules that failed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    rows: list[Row] = []
    missing: list[str] = []
    print(HEADER)
    for name in options.passes.split(",") if options.passes else pass_names():
        trigger = trigger_of(name)
        if trigger is None:
            missing.append(name)
            continue
        rows.append(
            measure(trigger, range(options.first, options.first + options.count), options.save)
        )
        print(rows[-1], flush=True)
    if missing:
        print(f"without a trigger: {', '.join(missing)}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 1 if missing or any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
