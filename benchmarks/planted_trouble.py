"""Whether `spmd profile` names the trouble that is planted in a program on two hosts, and how it words it.

    python -m benchmarks.planted_trouble [--only late,memory] [--steps 6]

    none        work enough to hide the reduction, to compare with
    neighbour   a process that computes on the core of device 1
    late        device 1 begins each of its steps 30 ms late
    resource    two reductions of which each takes as long as all work there is
    memory      a memory limit that keeps a large result from being there beside large products

Two hosts on this machine (benchmarks/two_hosts), a link of 1 Gbit/s and 0.2 ms each way, one core for each rank. Exits
with 1 where a reason is not named, 77 where two hosts are not possible.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.planted_modules import independent, large_between
from benchmarks.two_hosts.__main__ import SKIPPED
from launch.calibrated import machine_here
from spmd.machine.description import Exchange, MachineDescription
from spmd.machine.reader import write_machine

FAULTS = Path(__file__).parent / "fault_program.py"
#: What a processor still computes while bytes move over such a link: MPI's TCP takes part of its time.
BUSY = 0.2
NOTHING = "nothing"


@dataclass(frozen=True)
class Planted:
    """module: HLO text. late: device 1 is. neighbour: beside device 1. reason: the report's word for it."""

    name: str
    module: str
    reason: str
    options: tuple[str, ...] = ()
    late: bool = False
    neighbour: bool = False


KINDS = (
    Planted("none", independent(48, 1, 2048), NOTHING),
    Planted("neighbour", independent(48, 1, 2048), "contention", neighbour=True),
    Planted("late", independent(36, 1, 2048), "late peer", late=True),
    Planted("resource", independent(20, 2, 2048), "resource limit"),
    Planted("memory", large_between(3, 4096), "memory limit", ("--memory-limit", "62M")),
)


def profiled(kind: Planted, folder: Path, steps: int) -> dict[str, Any]:
    """The report as JSON. RuntimeError with what was said where there is none."""
    module, machine = folder / f"{kind.name}.hlo", folder / "machine.json"
    module.write_text(kind.module)
    machine.write_text(write_machine(linked()))
    spmd = ["spmd"]  # of MPICH's environment, and so is python
    if kind.late:
        spmd = ["python", str(FAULTS), "1", "between", "1", "late"]
    profile = ["profile", str(module), "--steps", str(steps), "--machine", str(machine), "--json"]
    hosts = [sys.executable, "-m", "benchmarks.two_hosts", "--rate", "1gbit", "--delay", "0.2ms"]
    with computing_neighbour() if kind.neighbour else nullcontext():
        done = subprocess.run(
            [*hosts, "--", *spmd, *profile, *kind.options],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == SKIPPED:
        print(done.stderr.strip())
        sys.exit(SKIPPED)
    if done.returncode:
        raise RuntimeError(f"{kind.name}: exit code {done.returncode}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def linked() -> MachineDescription:
    """This machine's cores, each a node, joined by such a link."""
    network = Exchange("link", 1 << 14, 1.2e8, 4e-4, ports=1, busy=BUSY)
    here = machine_here()
    inside = [replace(way, devices=1) for way in here.exchanges[:1]]
    return replace(here, name="two-hosts", exchanges=(*inside, network))


@contextmanager
def computing_neighbour() -> Iterator[None]:
    """On the last of this process's cores, which two_hosts gives to device 1."""
    core = max(os.sched_getaffinity(0))
    other = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    try:
        yield
    finally:
        other.kill()
        other.wait()


def named(kind: Planted, found: dict[str, Any]) -> str:
    """What the report says of the trouble; "" where it does not name it."""
    if kind.reason == NOTHING:
        measured = found["measured"]
        share = found["effective_overlap_s"] / sum(one["alone_s"] for one in found["collectives"])
        return f"{share:.0%} effectively hidden, step {1e3 * measured['step_s']:.1f} ms"
    most = max(found["collectives"], key=lambda one: float(one["causes"].get(kind.reason, 0.0)))
    said = [one for one in found["notes"] if one.startswith(kind.reason)]
    if most["why"].startswith(kind.reason):
        said.append(f"{most['op']}: {most['why']}")
    return "; ".join(said)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(kind.name for kind in KINDS))
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args(arguments)
    asked = options.only.split(",")
    if unknown := set(asked) - {kind.name for kind in KINDS}:
        parser.error(f"--only: nothing is called {', '.join(sorted(unknown))}")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            if kind.name not in asked:
                continue
            found = profiled(kind, Path(folder), options.steps)
            words = named(kind, found)
            missed += not words
            print(f"{kind.name:<10} {words or 'NOT NAMED'}")
            for one in found["collectives"]:
                causes = ", ".join(f"{why} {1e3 * s:.2f} ms" for why, s in one["causes"].items())
                print(f"{'':<10} {one['op']}: exposed {1e3 * one['exposed_s']:.2f} ms: {causes}")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
