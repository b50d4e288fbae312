"""Check that `spmd profile` names the trouble that is planted in a program on two hosts, and print how it words it.

    python -m benchmarks.overlap.planted_trouble [--only late,memory] [--steps 12]

    none        work that takes three times as long as a reduction beside it: nothing is to be named
    neighbour   the same, and a process that computes on the core of device 1
    late        work that takes as long as the reduction, and device 1 begins each of its steps 30 ms late
    resource    two reductions, of which each takes as long as all work there is
    memory      work for two, and a memory limit between what the step needs with its reduction hidden and without

Two hosts on this machine (benchmarks/two_hosts), a link of 1 Gbit/s and 0.2 ms each way, one core for each rank. How
much work that is comes from the description of this processor (measured first, in half a minute, where `spmd calibrate`
has not written one) and of the link, which is measured. Prints what the report says of the trouble, and to what it
puts down the exposed time of a step. Exits with 1 where that is not the trouble, or where nothing is planted and
something is named or little is hidden, or where the effective overlap is not the difference of the two steps; with 77
where two hosts are not possible.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.overlap.planted_modules import independent, large_between
from benchmarks.overlap.planted_sizes import limit_between, work_for
from benchmarks.two_hosts.__main__ import SKIPPED
from launch.report.overlap.model import Reason
from launch.target.calibrated import calibration_path
from spmd.errors import RunError
from spmd.machine.description import MachineDescription
from spmd.machine.reader import read_machine

FAULTS = Path(__file__).parents[1] / "faults" / "program.py"
HOSTS = ("-m", "benchmarks.two_hosts", "--rate", "1gbit", "--delay", "0.2ms")
#: The share of a step below which standing still is no trouble.
SLIGHT = 0.1
#: The share of what can be won that must be won where nothing is planted. All that collectives take alone can be won,
#: except what moving their bytes takes of the processor.
HIDDEN = 0.8
#: How far the effective overlap may be from the difference of the steps, as a share of it.
AGREES = 0.1


@dataclass(frozen=True)
class Planted:
    """module: HLO text with so many pieces of work. share: that these take, of one reduction. reason: that is to be
    named. late: device 1 is. neighbour: beside device 1. limited: in memory.
    """

    name: str
    module: Callable[[int], str]
    share: float
    reason: Reason | None
    late: bool = False
    neighbour: bool = False
    limited: bool = False


_one = partial(independent, reductions=1, rows=2048)
_two = partial(independent, reductions=2, rows=2048)
KINDS = (
    Planted("none", _one, 3.0, None),
    Planted("neighbour", _one, 3.0, Reason.CONTENTION, neighbour=True),
    Planted("late", _one, 1.0, Reason.LATE_PEER, late=True),
    Planted("resource", _two, 1.0, Reason.RESOURCE),
    Planted("memory", partial(large_between, rows=4096), 2.0, Reason.MEMORY, limited=True),
)


def on_hosts(*command: str, environment: Mapping[str, str] = os.environ) -> str:
    """Run a command on two hosts and return what it printed; exit where two hosts are not possible.

    Raises:
        RunError: The command failed; the message has what it said.
    """
    done = subprocess.run(
        [sys.executable, *HOSTS, "--", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == SKIPPED:
        print(done.stderr.strip())
        sys.exit(SKIPPED)
    if done.returncode:
        raise RunError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def linked(file: Path) -> MachineDescription:
    """This machine's cores, each a node, joined by such a link, as measured; also in ``file``."""
    settings = dict(os.environ)
    if not calibration_path().exists():
        settings["XDG_CONFIG_HOME"] = str(file.parent)
        print("this processor has no description: measuring one", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "launch", "calibrate"], env=settings, check=True)
    on_hosts("spmd", "calibrate", "-o", str(file), environment=settings)
    return read_machine(file.read_bytes(), str(file))


def profiled(
    kind: Planted, described: MachineDescription, machine: Path, steps: int
) -> dict[str, Any]:
    """The report as JSON. ``machine``: the file of the description, beside which the program is written."""
    text = kind.module(work_for(kind.share, kind.module, described))
    module = machine.with_name(f"{kind.name}.hlo")
    module.write_text(text, encoding="utf-8")
    spmd = ["spmd"]  # of MPICH's environment, and so is python
    if kind.late:
        spmd = ["python", str(FAULTS), "1", "between", "1", "late"]
    profile = ["profile", str(module), "--steps", str(steps), "--machine", str(machine), "--json"]
    if kind.limited:
        profile += ["--memory-limit", str(limit_between(text, described))]
    with computing_neighbour() if kind.neighbour else nullcontext():
        found: dict[str, Any] = json.loads(on_hosts(*spmd, *profile))
    return found


@contextmanager
def computing_neighbour() -> Iterator[None]:
    """Run a process on the last of this process's cores, which two_hosts gives to device 1."""
    core = max(os.sched_getaffinity(0))
    other = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    try:
        yield
    finally:
        other.kill()
        other.wait()


def causes_of(found: Mapping[str, Any]) -> Counter[str]:
    """Exposed seconds of a step by reason, over all collectives."""
    causes: Counter[str] = Counter()
    for one in found["collectives"]:
        causes.update(one["causes"])
    return causes


def noted(found: Mapping[str, Any]) -> list[str]:
    """Notes that name a reason."""
    return [note for note in found["notes"] if note.startswith(tuple(why.value for why in Reason))]


def named(reason: Reason, found: Mapping[str, Any]) -> list[str]:
    """Return what the report says of a reason: in its notes, and of the collective with most of it.

    The collective counts where the reason is its trouble, and explains more of a step's exposed time than any other.
    """
    said = [note for note in noted(found) if note.startswith(reason.value)]
    causes = causes_of(found)
    largest = max(SLIGHT * found["measured"]["step_s"], *causes.values(), 0.0)
    if causes[reason.value] == largest:
        most = max(
            found["collectives"], key=lambda one: float(one["causes"].get(reason.value, 0.0))
        )
        if most["why"].startswith(reason.value):
            said.append(f"{most['op']}: {most['why']}")
    return said


def faults_of(kind: Planted, found: Mapping[str, Any], busy: float) -> list[str]:
    """Return what the report should not say, or should say and does not.

    ``busy`` is the share of a processor that moving bytes takes.
    """
    faults = []
    if kind.reason is not None:
        if not named(kind.reason, found):
            faults.append(f"{kind.reason.value} is not named")
    else:
        step = found["measured"]["step_s"]
        faults += noted(found)
        faults += [why for why, seconds in causes_of(found).items() if seconds > SLIGHT * step]
        if hidden_share(found) < HIDDEN * (1.0 - busy):
            faults.append("little is hidden")
    # Nothing is hidden beside a memory limit, and a neighbour does not leave all steps the same.
    if not (kind.limited or kind.neighbour):
        effective, difference = won(found)
        if abs(effective - difference) > AGREES * abs(difference):
            faults.append("the effective overlap is not the difference of the steps")
    return faults


def hidden_share(found: Mapping[str, Any]) -> float:
    """Return the effectively hidden share of the time that the collectives take alone."""
    share: float = found["effective_overlap_s"] / sum(x["alone_s"] for x in found["collectives"])
    return share


def won(found: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds: the effective overlap, and the reference step less the step."""
    measured = found["measured"]
    return found["effective_overlap_s"], measured["reference_step_s"] - measured["step_s"]


def lines_of(kind: Planted, found: Mapping[str, Any], faults: Sequence[str]) -> Iterator[str]:
    said = [] if kind.reason is None else named(kind.reason, found)
    yield f"{kind.name:<10} {'right' if not faults else 'WRONG: ' + '; '.join(faults)}"
    measured = found["measured"]
    effective, difference = won(found)
    yield (
        f"  step {1e3 * measured['step_s']:.1f} ms, {hidden_share(found):.0%} effectively hidden: "
        f"{1e3 * effective:.1f} ms, difference of the steps {1e3 * difference:.1f} ms"
    )
    others = [note for note in found["notes"] if note not in said]
    yield from (f"  {words}" for words in [*said, *others])
    causes = ", ".join(f"{why} {1e3 * s:.2f} ms" for why, s in causes_of(found).most_common())
    yield f"  exposed {1e3 * measured['exposed_s']:.2f} ms: {causes}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(kind.name for kind in KINDS))
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args(arguments)
    asked = options.only.split(",")
    if unknown := set(asked) - {kind.name for kind in KINDS}:
        parser.error(f"--only: nothing is called {', '.join(sorted(unknown))}")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder) / "link.json"
        described = linked(machine)
        busy = described.exchanges[-1].busy
        print(f"the link takes {busy:.0%} of a processor while bytes move", flush=True)
        for kind in KINDS:
            if kind.name in asked:
                found = profiled(kind, described, machine, options.steps)
                faults = faults_of(kind, found, busy)
                wrong += bool(faults)
                print("\n".join(lines_of(kind, found, faults)), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
