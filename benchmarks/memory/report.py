"""Memory of one device beside XLA CPU's, kernels' own temporaries included.

    python -m benchmarks.memory.report CORPUS [--only REGEX] [--most 0.9] [--each 1.05] [--packing 1.03]

For every case: the temporary allocation that buffer assignment planned; the most bytes of arrays that kernels made
outside it at one time (library functions make arrays of their own; counted by NumPy's allocator while rank 0 of an
MPI job runs a step); XLA's temporary bytes for the same module (case.json); and everything, which is arguments +
outputs + temporaries - aliased, on both sides. ``on a node``: the planned temporaries of one device where a node holds
every group, so that results which are the same for all of a group lie there once. ``packing``: the bytes of all heaps
(temporaries, scratch and outputs that are not aliased) over the largest sum of what lives at one time, no size
rounded up, which no assignment on this schedule goes below. Exit code 1 where the geometric mean of everything is above
--most, or one case's above --each (and 1 KB), or a packing's above --packing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import spmd
from benchmarks.memory.numpy_memory import CountedArrays
from benchmarks.timing.turns import geometric_mean
from launch.data.inputs import SeededInputs
from launch.mpirun import MpiJob
from launch.ranks.rank_environment import world_of_environment

RANK_OPTION = "--as-rank"
#: Bytes that a tiny case may be over its bound.
SLACK = 1024
TITLE = (
    f"{'case':<28}{'temp':>12}{'on a node':>12}{'+ kernels':>12}{'XLA temp':>12}"
    f"{'everything':>13}{'XLA':>13}{'ratio':>8}{'packing':>9}"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--most", type=float, default=0.9, help="bound of the geometric mean")
    parser.add_argument("--each", type=float, default=1.05, help="bound of one case, and 1 KB")
    parser.add_argument("--packing", type=float, default=1.03, help="bound of one case's packing")
    parser.add_argument(RANK_OPTION, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        measure(options.corpus)
        return 0
    cases = [path.parent for path in sorted(options.corpus.glob("*/case.json"))]
    print(TITLE)
    figures = []
    for case in cases:
        if re.search(options.only, case.name):
            figures.append(measured(case))
            print(figures[-1].line(options.each), flush=True)
    if not figures:
        sys.exit(f"{options.corpus} has no such case")
    temp, total = (
        geometric_mean([one.over_peer(part) for one in figures]) for part in ("temp", "total")
    )
    over = [one.case for one in figures if one.is_over(options.each)]
    held_once = sum(one.temp - one.on_node for one in figures)
    saved = held_once / max(sum(one.temp for one in figures), 1)
    packed = geometric_mean([one.packing for one in figures])
    worst = max(figures, key=lambda one: one.packing)
    print(
        f"geometric mean over {len(figures)} cases: temporaries {temp:.3f}, everything {total:.3f} of XLA's "
        f"(at most {options.most:g} wanted); over {options.each:g}: {', '.join(over) or 'none'}"
    )
    print(
        f"packing: geometric mean {packed:.4f}, worst {worst.packing:.4f} ({worst.case}; at most "
        f"{options.packing:g} wanted); a node that holds every group saves {saved:.1%} of temp"
    )
    return int(total > options.most or bool(over) or worst.packing > options.packing)


@dataclass(frozen=True)
class Figures:
    """Bytes of one case on one device: planned temporaries, kernels' own arrays, everything; ours and XLA's.

    ``arena`` is the size of all heaps, and ``live`` the least that they could be.
    """

    case: str
    temp: int
    on_node: int
    outside: int
    planned: int
    arena: int
    live: int
    peer_temp: int
    peer_total: int

    @property
    def packing(self) -> float:
        return max(self.arena, 1) / max(self.live, 1)

    def over_peer(self, part: str) -> float:
        """Return our bytes over XLA's; 1 where neither takes any."""
        ours = self.outside + (self.temp if part == "temp" else self.planned)
        peer = self.peer_temp if part == "temp" else self.peer_total
        return max(ours, 1) / max(peer, 1)

    def is_over(self, each: float) -> bool:
        return self.planned + self.outside > each * self.peer_total + SLACK

    def line(self, each: float) -> str:
        return (
            f"{self.case:<28}{self.temp:>12,}{self.on_node:>12,}{self.outside:>12,}{self.peer_temp:>12,}"
            f"{self.planned + self.outside:>13,}{self.peer_total:>13,}{self.over_peer('total'):>8.3f}"
            f"{self.packing:>9.4f}{'  over' if self.is_over(each) else ''}"
        )


def measured(case: Path) -> Figures:
    """Run the case as an MPI job and return the figures of rank 0 in its second step."""
    description = json.loads((case / "case.json").read_text())
    devices = description["num_partitions"] * description.get("num_replicas", 1)
    job = MpiJob(devices, (sys.executable, __file__, str(case), RANK_OPTION))
    done = subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{case.name}: {done.stderr}")
    ours, peer = json.loads(done.stdout), description["peer"]["memory"]
    whole = peer["argument_size_in_bytes"] + peer["output_size_in_bytes"]
    temp = peer["temp_size_in_bytes"]
    return Figures(
        case.name, **ours, peer_temp=temp, peer_total=whole + temp - peer["alias_size_in_bytes"]
    )


def measure(case: Path) -> None:
    """Run two steps as a rank and print what the second one allocates; the first step makes what lasts."""
    rank, size = world_of_environment() or (0, 1)
    executable = spmd.compile(spmd.load(case / "module.hlo"), devices=size)
    inputs = SeededInputs(0, [one.shape for one in executable.inputs])
    executable.run(executable.put(inputs))
    state = executable.put(inputs)
    with CountedArrays() as arrays:
        executable.run(state)
    stats = executable.stats
    planned = stats.arguments + stats.outputs + stats.temp - stats.aliased
    if rank == 0:
        ours = {"temp": stats.temp, "on_node": stats.temp_on_a_node, "outside": arrays.peak}
        packed = {"arena": stats.arena, "live": stats.peak_live_in_arena}
        print(json.dumps({**ours, "planned": planned, **packed}))


if __name__ == "__main__":
    sys.exit(main())
