"""Run the modules of XLA's own tests here and by XLA CPU, and compare the outputs.

    python -m benchmarks.xla_modules FOLDER --jax PYTHON [--only REGEX] [--sample N] [--json FILE]

FOLDER holds one module a file (`python -m benchmarks.xla_modules.texts REPOSITORY FOLDER` makes it). Both sides get the
same seeded inputs. Counted are the modules for one device that XLA CPU compiles and runs; the last line says how many
of these run here and agree (within the tolerance of `spmd run --expect`). The others are listed with the reason.
Modules whose result XLA leaves to the implementation (rng, equal keys of an unstable sort) count apart if the result
here is that of the reference evaluator. Exits with 1 if fewer than 99 % agree.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.xla_modules.worker import Worker

AGREES = "agrees"


def compared(path: Path, ours: Worker, peer: Worker, work: Path) -> tuple[str, str]:
    """Return a verdict (agrees, differs, fails, left out, not run by XLA) and its reason."""
    files = {"inputs": str(work / "in.npz"), "outputs": str(work / "out.npz")}
    request: dict[str, Any] = {"module": str(path), **files}
    made = ours.ask({**request, "do": "inputs"})
    if "left_out" in made:
        return "left out", made["left_out"]
    if "error" in made:  # without inputs nobody can say whether XLA runs it, unless it takes none
        return "not read here", made["error"]
    theirs = peer.ask({**request, "types": made["types"]})
    if "error" in theirs:
        return "not run by XLA", theirs["error"]
    found = ours.ask({**request, "do": "run"})
    if "error" in found:
        return "fails", found["error"]
    if found["error_of_tolerance"] <= 1:
        return AGREES, ""
    against = found.get("error_to_evaluator", float("nan"))
    if against <= 1 and found["free_choice"]:
        return "left to the implementation", found["free_choice"]
    return (
        "differs",
        f"{found['error_of_tolerance']:.3g} of tolerance ({against:.3g} to the evaluator)",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jax", required=True, help="a Python interpreter that has jax")
    parser.add_argument("--only", default="", help="regular expression on module names and sources")
    parser.add_argument("--sample", type=int, help="so many modules, drawn with a fixed seed")
    parser.add_argument("--seconds", type=float, default=60, help="limit of one module")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    index = json.loads((options.folder / "index.json").read_text())
    names = sorted(n for n in index if re.search(options.only, f"{n} {index[n]}"))
    if options.sample is not None:
        names = sorted(random.Random(0).sample(names, min(options.sample, len(names))))
    ours = Worker([sys.executable, "-m", "benchmarks.xla_modules.ours"], options.seconds)
    peer = Worker([options.jax, "-m", "benchmarks.xla_modules.peer"], options.seconds)
    rows = {}
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            path = options.folder / f"{name}.hlo"
            verdict, reason = compared(path, ours, peer, Path(work))
            rows[name] = (verdict, reason, index[name])
            if verdict in ("differs", "fails"):
                print(f"{name}  {verdict}: {reason[:160]}  ({index[name]})", flush=True)
    ours.close()
    peer.close()
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    counts = collections.Counter(verdict for verdict, _, _ in rows.values())
    print(", ".join(f"{verdict}: {count}" for verdict, count in sorted(counts.items())))
    run = counts[AGREES] + counts["differs"] + counts["fails"]
    print(f"{counts[AGREES]} of {run} modules that XLA CPU runs agree")
    return 0 if run and counts[AGREES] >= 0.99 * run else 1


if __name__ == "__main__":
    sys.exit(main())
