"""Collectives of one node, 1 KB to 64 MB: ours, MPI's, jaxlib's within a process, gloo's; a table and JSON.

    python -m benchmarks.communication.node_collectives [--ranks 2] [--dtype f32] [--jax PYTHON] [--turns 3] [--rounds
    15]
        [--kinds ...] [--sizes ...] [--legs MPI,ranks,process,jaxlib,gloo] [--first] [--results FOLDER [--add]]

Each runs in processes of its own (mpi_collectives.py, program_collectives.py, jax_collectives.py), one after the other,
in so many turns; a figure is the least of all rounds of all turns, since others' work on the machine only adds. Bytes
are those of the larger of one device's operand and result.

``ours`` and MPI's are called from Python on the same ranks, the quickest of the forms that mpi_collectives.py prints:
ours over its operand, to a result of its own, or to one held together; MPI's out of place or in place. Where forms do
not end with the same (a result held together is not one of each rank's own), ``private`` is our quickest with a result
of its own. ``ranks`` and ``process`` are ours within compiled programs, on one device in each rank and on devices of
one process, as jaxlib's and gloo's figures are: the quicker of one call, its dispatch included, and of a loop in one
program. Beside them stand the ratios of ``ours`` and ``private`` to the best of all others, and those of ``ranks`` and
``process`` to the better of jaxlib and gloo: like these they count dispatch, or what a loop copies.

``limit``: what memory allows, bytes that a rank reads and writes over the bandwidth of a plain copy in the same turn;
of our forms, that of the one which needs the least. ``of it``: ``ours`` over that. It knows nothing of meetings, which
are all that counts up to some 16 KB.

Without --jax, a Python that has jax, MPI stands alone. Where others use the machine too, --first lets all of
these go first (needs the right to). --results gets node_collectives.json, in which the run among as many ranks of the
same type is replaced, or with --add takes the lesser of its figures and these; and, where matplotlib is, a picture.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing.first import FIRST
from benchmarks.timing.turns import geometric_mean
from launch.report.environment import describe_environment

SIZES = tuple(kib << 10 for kib in (1, 16, 256, 1024, 16 << 10, 64 << 10))
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
#: Seconds for one participant's turn.
PATIENCE = 900
#: The largest ratio of our time to the best peer's.
MOST = 1.1
#: The least ratio of jaxlib's time to ours, and the bytes at which it counts.
LEAST_GAIN, GAIN_BYTES = 4.0, 1 << 20
#: Forms after which all members read the very same memory.
SHARED = ", shared"

OURS = ("ours", "private", "ranks", "process")
PEERS = ("MPI", "in place", "jaxlib", "gloo")
LIMIT = "limit"
COLUMNS = (*OURS, *PEERS, LIMIT)
LEGS = ("MPI", "ranks", "process", "jaxlib", "gloo")
#: Sides whose ratio is shown, and the peers to the best of which it is.
RATED = {
    "ours": PEERS,
    "private": PEERS,
    "ranks": ("jaxlib", "gloo"),
    "process": ("jaxlib", "gloo"),
}

Found = dict[tuple[str, int], dict[str, float]]


@dataclass
class Figures:
    """Seconds, by kind and bytes, of who takes part: the least of all turns."""

    found: Found = field(default_factory=dict)

    def note(self, kind: str, size: int, who: str, seconds: float) -> None:
        row = self.found.setdefault((kind, size), {})
        row[who] = min(row.get(who, seconds), seconds)


def mpi_turn(options: argparse.Namespace, figures: Figures) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "rows.json")
        script = ["-m", "benchmarks.communication.mpi_collectives"]
        run([*launcher(options), *script, "--json", str(target), *asked(options)], options)
        for row in json.loads(target.read_text()):
            place = row["kind"], row["bytes"]
            ours, *peers = row["least"]
            figures.note(*place, "ours", ours)
            figures.note(*place, LIMIT, row["limit"])
            if SHARED not in row["form"]:
                figures.note(*place, "private", ours)
            for who, seconds in zip(("MPI", "in place"), peers, strict=False):
                figures.note(*place, who, seconds)


def program_turns(options: argparse.Namespace, figures: Figures) -> None:
    """gloo's processes may lose each other in one kind: each is a run of its own, so that the others' figures stand."""
    devices = ["--devices", str(options.ranks)]
    ours = ["-m", "benchmarks.communication.program_collectives"]
    jaxlib = [options.jax, "-m", "benchmarks.communication.jax_collectives"]
    legs = {"ranks": [*launcher(options), *ours], "process": [sys.executable, *ours]}
    if options.jax:
        legs |= {"jaxlib": jaxlib, "gloo": [*jaxlib, "--gloo"]}
    for who, command in legs.items():
        if who not in options.legs:
            continue
        for kinds in options.kinds.split(",") if who == "gloo" else [options.kinds]:
            try:
                said = run([*command, *devices, *asked(options), "--kinds", kinds], options)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{who}, {kinds}: no figures: {str(error)[-120:]}", file=sys.stderr)
                continue
            for name, ways in json.loads(said.splitlines()[-1]).items():
                kind, size = name.split()
                figures.note(kind, int(size), who, min(ways.values()))


def launcher(options: argparse.Namespace) -> list[str]:
    return [sys.executable, "-m", "launch.mpirun", "-n", str(options.ranks), "--"]


def asked(options: argparse.Namespace) -> list[str]:
    sizes = ",".join(map(str, options.sizes))
    rounds = ["--rounds", str(options.rounds)]
    return ["--kinds", options.kinds, "--sizes", sizes, "--dtype", options.dtype, *rounds]


def run(command: list[str], options: argparse.Namespace) -> str:
    if options.first:
        command = [*FIRST, *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def over_best(row: dict[str, float], who: str) -> float:
    """``who``'s time over that of its best peer; nan where either has none."""
    return row.get(who, math.nan) / min((row[p] for p in RATED[who] if p in row), default=math.nan)


def line_of(kind: str, size: int, row: dict[str, float]) -> str:
    cells = [f"{1e6 * row[w]:10.1f}" if w in row else f"{'-':>10s}" for w in COLUMNS]
    ratios = [f"{over_best(row, who):8.2f}" for who in RATED]
    of_limit = f"{row.get('ours', math.nan) / row.get(LIMIT, math.nan):8.2f}"
    return f"{kind:20s} {size:9d} {' '.join([*cells, *ratios, of_limit])}"


def summary(found: Found) -> Iterator[str]:
    """Yield what holds of all figures, and where it does not."""
    for who in RATED:
        ratios = {place: over_best(row, who) for place, row in found.items()}
        known = [ratio for ratio in ratios.values() if not math.isnan(ratio)]
        above = [f"{kind} {size}: {r:.2f}" for (kind, size), r in ratios.items() if r > MOST]
        yield (
            f"{who} over the best: geometric mean {geometric_mean(known):.2f}, at most {MOST} in "
            f"{len(known) - len(above)} of {len(known)}; above: {', '.join(above) or 'none'}"
        )
    for who in ("ours", "ranks", "process"):
        gains = ", ".join(
            f"{kind} {row['jaxlib'] / row[who]:.1f}"
            for (kind, size), row in found.items()
            if size == GAIN_BYTES and "jaxlib" in row and who in row
        )
        if gains:
            yield f"jaxlib's time at 1 MB over {who} (at least {LEAST_GAIN:.0f} wanted): {gains}"


def ordered(found: Found) -> Found:
    return dict(sorted(found.items(), key=lambda entry: (KINDS.index(entry[0][0]), entry[0][1])))


def write_results(folder: Path, run_of: dict[str, Any], figures: Figures, *, add: bool) -> None:
    """Replace the run with as many ranks of the same type; with ``add`` keep the lesser figures of both."""
    path = folder / "node_collectives.json"
    report = json.loads(path.read_text()) if path.exists() else {"runs": []}
    key = ("ranks", "dtype")
    same = [r for r in report["runs"] if [r[k] for k in key] == [run_of[k] for k in key]]
    loads = [run_of.pop("load")]
    for one in same:
        report["runs"].remove(one)
        if add:
            loads = [*one["loads"], *loads]
            note_rows(figures, one["rows"])
    found = ordered(figures.found)
    rows = [{"kind": k, "bytes": s, "seconds": row} for (k, s), row in found.items()]
    run = {**run_of, "loads": loads, "rows": rows}
    report["runs"].append(run)
    report["runs"].sort(key=lambda one: [str(one[k]) for k in key])
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        from benchmarks.communication.plot_node_collectives import draw

        draw(run, folder / f"node_collectives_{run['ranks']}_{run['dtype']}.png")


def note_rows(figures: Figures, rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        for who, seconds in row["seconds"].items():
            figures.note(row["kind"], row["bytes"], who, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--jax", default="", metavar="PYTHON", help="one that has jax")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15, help="in each turn")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument(
        "--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES
    )
    parser.add_argument("--legs", default=LEGS, type=lambda text: tuple(text.split(",")))
    parser.add_argument("--first", action="store_true", help="before all others on this machine")
    parser.add_argument("--results", type=Path, help="write figures and picture to this folder")
    parser.add_argument("--add", action="store_true", help="keep earlier figures that are less")
    options = parser.parse_args()
    environment, load = describe_environment(), os.getloadavg()[0]
    print(json.dumps(environment), f"load {load:.1f}")
    figures = Figures()
    for _ in range(options.turns):
        if "MPI" in options.legs:
            mpi_turn(options, figures)
        program_turns(options, figures)
    titles = [*(f"{who:>10s}" for who in COLUMNS), *(f"{who:>8s}" for who in (*RATED, "of it"))]
    where = f"us, {options.ranks} of {options.dtype}"
    print(f"{where:20s} {'bytes':>9s} {' '.join(titles)}")
    found = ordered(figures.found)
    for place, row in found.items():
        print(line_of(*place, row))
    for line in summary(found):
        print(line)
    if options.results:
        run_of = {"ranks": options.ranks, "dtype": options.dtype, "environment": environment}
        run_of |= {"before_others": options.first, "load": load}
        write_results(options.results, run_of, figures, add=options.add)
    return 0


if __name__ == "__main__":
    sys.exit(main())
