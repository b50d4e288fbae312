"""Measure what overlap is worth over a link between two hosts: a step with it, without it, and its halves alone.

    python -m benchmarks.overlap.link MODULE... [--rate 1gbit]... [--delay 0.2ms] [--rounds 10] [--first]
        [--results FOLDER]

At each rate: two hosts and a link (benchmarks/two_hosts), what joins them measured by `spmd calibrate`, and each module
compiled for that and timed on a rank of either host, in turns (benchmarks/overlap/ranks.py). Medians of rounds. Of
what can be hidden, `waiting` minus the longer of compute and communication alone, the share that is; and of what
dependencies leave of that, since the longer one begins late, ends early or pauses, for as long as is predicted of any
order in pieces (collectives/simulate/least_step.py). Pieces cost a step that waits more than one without them: so the
share of what dependencies leave is also given of `plain`, compiled without the passes that overlap. Beside the
difference, waiting - scheduled, what the overlap report makes of a recorded run of the same steps.

--first lets all of this go before others on the machine (needs the right to). Exits with 1 where something is not as
wanted, 77 where two hosts are not possible.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.overlap.ranks import STEPS
from benchmarks.timing.first import FIRST
from benchmarks.two_hosts.__main__ import SKIPPED
from benchmarks.two_hosts.commands import NotPermittedError
from benchmarks.two_hosts.link import LinkShape, delay_of, link, rate_of
from benchmarks.two_hosts.mpich import HostsJob
from benchmarks.two_hosts.namespaces import hosts
from benchmarks.two_hosts.probe import probed
from collectives.simulate.cut_graph import COMPUTE
from launch.cli.output_path import OutputPathError, require_writable
from spmd.errors import RunError

SECONDS = 600.0
RESULTS = "overlap_link.json"
#: The name that ``LeastStep`` gives to time that no resource takes.
CRITICAL_PATH = "critical path"
#: Bounds of the hidden share of what dependencies leave, of tracing's cost, of the clocks' error in seconds, and of how
#: far the report may be from the difference of the steps.
HIDDEN, TRACING, CLOCKS, AGREES = 0.8, 0.02, 20e-6, 0.1
HEADER = (
    "| program | Gbit/s | scheduled ms | waiting | plain | compute | communication | hidden of what can be | "
    "of what dependencies leave | the same of plain | effective by report | difference | tracing | clocks us |\n"
    + 14 * "|---"
    + "|"
)


def row_of(found: dict[str, Any], rate: float) -> dict[str, Any]:
    typical = {name: statistics.median(found["seconds"][name]) for name in STEPS}
    gained = typical["waiting"] - typical["scheduled"]
    floor = max(typical["compute"], typical["communication"])
    return {
        "program": found["module"],
        "gbit_per_s": rate / 1e9,
        "step_s": typical,
        "hidden_of_hideable": share_of(gained, typical["waiting"] - floor),
        "hidden_of_possible": share_of(
            gained, typical["waiting"] - possible(typical, found["least"])
        ),
        "hidden_of_plain": share_of(
            typical["plain"] - typical["scheduled"],
            typical["plain"] - possible(typical, found["least"]),
        ),
        "difference_s": gained,
        "effective_overlap_s": found["report"]["effective_overlap_s"],
        "tracing": typical["traced"] / typical["scheduled"] - 1.0,
        "clock_error_s": max(found["clock_errors_s"]),
        **{name: found[name] for name in ("exchange", "seconds", "clock_uncertainty_s", "least")},
        "report": found["report"]["measured"],
    }


def share_of(gained: float, hideable: float) -> float | None:
    """Return the share that was gained; None where there is nothing to hide."""
    return gained / hideable if hideable > 0.0 else None


def possible(typical: dict[str, float], least: dict[str, Any] | None) -> float:
    """Seconds of a step: what is predicted to be the longest, as measured, and what it stands still for as predicted,
    at the pace of the step that was measured without passes that overlap: in both collectives are whole.
    """
    compute, communication = typical["compute"], typical["communication"]
    longer = max(compute, communication)
    if least is None:
        return longer
    of = {COMPUTE: compute, CRITICAL_PATH: longer}.get(least["what"], communication)
    return max(longer, of + least["idle"] * typical["plain"] / least["waiting"])


def line_of(row: dict[str, Any]) -> str:
    step = row["step_s"]
    order = ("scheduled", "waiting", "plain", "compute", "communication")
    cells = [row["program"], f"{row['gbit_per_s']:g}", *(f"{1e3 * step[n]:.1f}" for n in order)]
    shares = (row["hidden_of_hideable"], row["hidden_of_possible"], row["hidden_of_plain"])
    cells += ["-" if share is None else f"{share:.0%}" for share in shares]
    cells += [f"{1e3 * row['effective_overlap_s']:.1f}"]
    cells += [f"{1e3 * row['difference_s']:.1f}", f"{row['tracing']:.1%}"]
    cells += [f"{1e6 * row['clock_error_s']:.1f}"]
    return f"| {' | '.join(cells)} |"


def measure(options: argparse.Namespace, rate: float, folder: Path) -> list[dict[str, Any]]:
    shape = LinkShape(rate, options.delay)
    rows = []
    with hosts(2) as both, link((both[0], both[1]), shape) as ends:
        before = FIRST if options.first else ()  # of each rank: a rank is a session of its own
        print(f"{shape}: {probed(ends, rate, before)}", file=sys.stderr)
        machine = str(folder / "link.json")

        def on_ranks(*words: str) -> str:
            return HostsJob(both, 2, (*before, "python", "-m", *words)).output(SECONDS)

        print(on_ranks("launch", "calibrate", "-o", machine), file=sys.stderr)
        for module in options.modules:
            asked = (str(module), "--machine", machine, "--rounds", str(options.rounds))
            found = json.loads(on_ranks("benchmarks.overlap.ranks", *asked))
            rows.append(row_of(found, rate) | {"environment": found["environment"]})
            print(line_of(rows[-1]), flush=True)
    return rows


def unmet(rows: list[dict[str, Any]]) -> list[str]:
    """Return which bounds each row misses."""
    lines = []
    for row in rows:
        gained, hidden = row["difference_s"], row["hidden_of_possible"]
        wanted = {
            "hidden": hidden is None or hidden >= HIDDEN,
            "report and difference": abs(row["effective_overlap_s"] - gained)
            <= AGREES * abs(gained),
            "tracing": row["tracing"] <= TRACING,
            "clocks": row["clock_error_s"] <= CLOCKS,
        }
        missed = [name for name, is_met in wanted.items() if not is_met]
        if missed:
            lines.append(f"{row['program']} at {row['gbit_per_s']:g}: {', '.join(missed)}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
    rows = []
    load = os.getloadavg()[0]
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rate in options.rate or [rate_of("1gbit")]:
                rows += measure(options, rate, Path(folder))
        except NotPermittedError as error:
            print(f"not possible here: {error}", file=sys.stderr)
            return SKIPPED
        except RunError as error:
            print(error, file=sys.stderr)
            return RunError.exit_code
    environment = rows[0]["environment"]
    print(json.dumps(environment))
    missed = unmet(rows)
    for line in missed:
        print(f"not as wanted: {line}")
    if options.results:
        for row in rows:
            del row["environment"]
        report = {
            "environment": environment,
            "load": load,
            "delay_s": options.delay,
            "rounds": options.rounds,
            "rows": rows,
        }
        (options.results / RESULTS).write_text(json.dumps(report, indent=1) + "\n")
    return 1 if missed else 0


def _parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path, nargs="+", metavar="MODULE")
    parser.add_argument("--rate", type=rate_of, action="append")
    parser.add_argument("--delay", type=delay_of, default="0.2ms")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--first", action="store_true", help="before all others on this machine")
    parser.add_argument("--results", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        require_writable(options.results and options.results / RESULTS)
    except OutputPathError as error:
        parser.error(f"--results: {error}")
    return options


if __name__ == "__main__":
    sys.exit(main())
