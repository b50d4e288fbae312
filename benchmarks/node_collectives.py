"""Collectives of one node, 1 KB to 64 MB: ours, MPI's, jaxlib's within a process, gloo's; a table and JSON.

    python -m benchmarks.node_collectives [--ranks 2] [--jax PYTHON] [--turns 3] [--rounds 15] [--kinds ...]
        [--sizes ...] [--first] [--json FILE]

Each of the four runs in processes of its own (mpi_collectives.py, jax_collectives.py), one after the other, in so many
turns; a figure is the least of all rounds of all turns, since others' work on the machine only adds. Bytes are those of
the larger of one device's operand and result.
Ours and MPI's are the quickest of the forms that mpi_collectives.py prints: ours over its operand, to a result of its
own, or to one held together; MPI's out of place or in place. Where forms do not end with the same (a result held
together is not one of each rank's own), ``private`` is our quickest with a result of its own, and the ratio of that
stands beside. jaxlib's and gloo's are the quicker of one call, its dispatch included, and of a loop in one program.
Without --jax, a Python that has jax, MPI stands alone. Where others use the machine too, --first lets all of
these go first (needs the right to).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.timing.turns import geometric_mean
from launch.report.environment import describe_environment

SIZES = tuple(kib << 10 for kib in (1, 16, 256, 1024, 16 << 10, 64 << 10))
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
#: Seconds for one participant's turn.
PATIENCE = 900
#: Of ours over the best peer's time.
MOST = 1.1
#: Of jaxlib's time over ours, at 1 MB.
LEAST_GAIN, GAIN_BYTES = 4.0, 1 << 20
#: Forms after which all members read the very same memory.
SHARED = ", shared"

PEERS = ("MPI", "in place", "jaxlib", "gloo")
COLUMNS = ("ours", "private", *PEERS)

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
        script = str(Path(__file__).with_name("mpi_collectives.py"))
        launcher = [sys.executable, "-m", "launch.mpirun", "-n", str(options.ranks), "--"]
        run([*launcher, script, "--json", str(target), *asked(options)], options)
        for row in json.loads(target.read_text()):
            place = row["kind"], row["bytes"]
            ours, *peers = row["least"]
            figures.note(*place, "ours", ours)
            if SHARED not in row["form"]:
                figures.note(*place, "private", ours)
            for who, seconds in zip(("MPI", "in place"), peers, strict=False):
                figures.note(*place, who, seconds)


def jax_turn(options: argparse.Namespace, figures: Figures, who: str) -> None:
    """One run for each kind: should gloo's processes lose each other in one, the others' figures stand."""
    for kind in options.kinds.split(","):
        command = [
            options.jax,
            "-m",
            "benchmarks.jax_collectives",
            *asked(options),
            "--kinds",
            kind,
        ]
        command += ["--devices", str(options.ranks), *(["--gloo"] if who == "gloo" else [])]
        try:
            said = run(command, options)
        except RuntimeError as error:
            print(f"{who}, {kind}: no figures in this turn: {str(error)[-120:]}", file=sys.stderr)
            continue
        for name, ways in json.loads(said.splitlines()[-1]).items():
            figures.note(kind, int(name.split()[1]), who, min(ways.values()))


def asked(options: argparse.Namespace) -> list[str]:
    sizes = ",".join(map(str, options.sizes))
    return ["--kinds", options.kinds, "--sizes", sizes, "--rounds", str(options.rounds)]


def run(command: list[str], options: argparse.Namespace) -> str:
    if options.first:
        command = ["nice", "-n", "-20", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def line_of(kind: str, size: int, row: dict[str, float]) -> str:
    cells = [f"{1e6 * row[who]:10.1f}" if who in row else f"{'-':>10s}" for who in COLUMNS]
    best = min(row[who] for who in PEERS if who in row)
    jaxlib = f"{row['jaxlib'] / row['ours']:8.1f}" if "jaxlib" in row else f"{'-':>8s}"
    ratios = f"{row['ours'] / best:8.2f} {row['private'] / best:8.2f}"
    return f"{kind:20s} {size:9d} {' '.join(cells)} {ratios} {jaxlib}"


def summary(found: Found) -> list[str]:
    """What holds of all figures, and where it does not."""
    over = {
        place: row["ours"] / min(row[who] for who in PEERS if who in row)
        for place, row in found.items()
    }
    above = [
        f"{kind} {size}: {over[kind, size]:.2f}" for kind, size in over if over[kind, size] > MOST
    ]
    lines = [
        (
            f"ours over the best: geometric mean {geometric_mean(over.values()):.2f}, "
            f"above {MOST}: {', '.join(above) or 'none'}"
        )
    ]
    gains = {
        kind: row["jaxlib"] / row["ours"]
        for (kind, size), row in found.items()
        if size == GAIN_BYTES and "jaxlib" in row
    }
    if gains:
        shown = ", ".join(f"{kind} {gain:.1f}" for kind, gain in gains.items())
        lines.append(f"jaxlib's time at 1 MB over ours (at least {LEAST_GAIN:.0f} wanted): {shown}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--jax", default="", metavar="PYTHON", help="one that has jax")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15, help="in each turn")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument(
        "--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES
    )
    parser.add_argument("--first", action="store_true", help="before all others on this machine")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    environment = describe_environment()
    print(json.dumps(environment))
    figures = Figures()
    for _ in range(options.turns):
        mpi_turn(options, figures)
        for who in ("jaxlib", "gloo") if options.jax else ():
            jax_turn(options, figures, who)
    titles = [f"{who:>10s}" for who in COLUMNS]
    where = f"us, {options.ranks} ranks"
    print(
        f"{where:20s} {'bytes':>9s} {' '.join(titles)} {'/ best':>8s} {'private':>8s} {'jaxlib/':>8s}"
    )
    for place in sorted(figures.found, key=lambda place: (KINDS.index(place[0]), place[1])):
        print(line_of(*place, figures.found[place]))
    for line in summary(figures.found):
        print(line)
    if options.json:
        rows = [{"kind": k, "bytes": s, "seconds": row} for (k, s), row in figures.found.items()]
        report = {"environment": environment, "ranks": options.ranks, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
