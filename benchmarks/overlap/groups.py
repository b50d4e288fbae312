"""Show what each group of passes on collectives does to a program on described machines, in a table.

    python -m benchmarks.overlap.groups MODULE... [--machine dgx-h100] [--machine "dgx-h100{links=0.25}"]

Nothing runs: programs are compiled for the machine, with ever more of the groups in their order
(launch/stages/collective_pipelines.py), and simulated there. "hidden" is the share of what could be hidden,
min(computation, communication). The exit code is 1 where less than nine tenths are hidden with all groups, or where
more memory is needed than the machine has.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import SimulationOptions, simulate
from launch.collective_groups import COLLECTIVE_GROUPS
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.text.sources.load import load
from spmd.text.stage import device_count

MACHINES = ("dgx-h100", "dgx-h100{links=0.25}")
LEAST_HIDDEN = 0.9
HEADER = (
    "| and | step ms | compute | slowed | exposed | hidden | of hideable | GB | collectives | GB sent | CPU s |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table, after the passes up to ``group``.

    ``collectives`` are those executed in a step, and ``sent`` the bytes that a device sends in it.
    """

    group: str
    found: Simulation
    collectives: float
    sent: float
    seconds: float

    @property
    def share(self) -> float:
        """The hidden share of what could be hidden, of the resource where it is least."""
        return min((use.share for use in self.found.resources), default=1.0)


def rows_of(module: HloModule, machine: MachineDescription) -> Iterator[Row]:
    for count in range(len(COLLECTIVE_GROUPS) + 1):
        start = time.process_time()
        options = CompileOptions(
            machine=machine,
            without=COLLECTIVE_GROUPS[count:],
            keep_attention_calls=machine.is_gpu,
        )
        *_, (_, compilation) = stages(module, device_count(module), options)
        program = compilation.module
        busy = machine.busy
        estimator = RooflineEstimator.of(program, machine)
        found = simulate(program, [estimator], SimulationOptions(busy=busy))
        cost = module_cost(program)
        executed = sum(kind.executed for kind in cost.collectives.values())
        group = COLLECTIVE_GROUPS[count - 1] if count else "none"
        yield Row(group, found, executed, cost.wire_bytes, time.process_time() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path, nargs="+", metavar="MODULE")
    parser.add_argument("--machine", action="append", metavar="NAME")
    options = parser.parse_args(arguments)
    bad = []
    for path in options.modules:
        module = load(path)
        for name in options.machine or MACHINES:
            machine = machine_named(name)
            print(f"\n{path.stem}, {device_count(module)} devices of {name}\n")
            print(HEADER)
            for row in rows_of(module, machine):
                print(_line(row), flush=True)
            if row.share < LEAST_HIDDEN:
                bad.append(f"{path.stem} on {name}: {row.share:.1%} hidden")
            if row.found.peak_bytes > machine.memory_limit:
                bad.append(f"{path.stem} on {name}: {row.found.peak_bytes / 1e9:.1f} GB")
    print("\n".join(["", *bad]))
    return 1 if bad else 0


def _line(row: Row) -> str:
    found = row.found
    times = (found.seconds, found.compute, found.slowed, found.exposed)
    hideable = max((use.hideable for use in found.resources), default=0.0)
    cells = [row.group, *(f"{1e3 * one:.1f}" for one in times), f"{row.share:.1%}"]
    cells += [f"{1e3 * hideable:.1f} ms", f"{found.peak_bytes / 1e9:.1f}"]
    cells += [f"{row.collectives:g}", f"{row.sent / 1e9:.2f}", f"{row.seconds:.1f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
