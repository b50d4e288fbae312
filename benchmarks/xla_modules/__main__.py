"""Run the modules of XLA's own tests here and by XLA CPU, and compare the outputs.

    python -m benchmarks.xla_modules FOLDER --jax PYTHON [--only REGEX] [--sample N] [--json FILE] [--page PAGE]

FOLDER holds one module a file (`python -m benchmarks.xla_modules.texts REPOSITORY FOLDER` makes it). Both sides get the
same seeded inputs. Modules for several devices are given to XLA CPU with as many devices, and run here compiled on
devices of one process and by the reference evaluator in lock step. The last lines say how many of the modules that XLA
CPU compiles and runs agree, as `spmd run --expect` judges it; the others are listed with the reason. Modules whose
result XLA leaves to the implementation (rng, equal keys of an unstable sort) count apart if the result here is that of
the reference evaluator. Exits with 1 if fewer than 99 % agree. What FILE holds of earlier runs counts as well, so that
the modules can be run in pieces.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.xla_modules.page import WRONG, totals, write_page
from benchmarks.xla_modules.worker import Worker

#: Modules between two writings of the rows.
_PIECE = 20


def compared(name: str, options: argparse.Namespace, workers: tuple[Worker, Worker]) -> list[Any]:
    """Return a verdict (agrees, differs, fails, left out, not run by XLA), its reason, and the number of devices."""
    ours, peer = workers
    work: Path = options.work
    files = {"inputs": str(work / "in.npz"), "outputs": str(work / "out.npz")}
    request: dict[str, Any] = {"module": str(options.folder / f"{name}.hlo"), **files}
    request["elements"] = options.elements
    if options.keep:
        for kind in files:
            request[kind] = str(options.keep / f"{name}.{kind}.npz")
        request["keep"] = str(options.keep / f"{name}.npz")
    made = ours.ask({**request, "do": "inputs"})
    for kind in ("left_out", "unsound"):
        if kind in made:
            return [kind.replace("_", " "), made[kind], 0]
    if "error" in made:
        theirs = peer.ask({"module": request["module"]})
        if "error" in theirs:
            return ["not run by XLA", theirs["error"], 0]
        return ["fails", made["error"], 0]
    devices = made["replicas"] * made["partitions"]
    theirs = peer.ask({**request, **made})
    if "error" in theirs and "otherwise" in made:
        theirs = peer.ask({**request, **made, "module": made["otherwise"]})
    if "error" in theirs:
        return ["not run by XLA", theirs["error"], devices]
    found = ours.ask({**request, "do": "run"})
    if "error" in found:
        return ["fails", found["error"], devices]
    return [found["verdict"], found["reason"], devices]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jax", required=True, help="a Python interpreter that has jax")
    parser.add_argument("--only", default="", help="regular expression on module names and sources")
    parser.add_argument("--names", type=Path, help="a file of module names, one a line")
    parser.add_argument("--sample", type=int, help="so many modules, drawn with a fixed seed")
    parser.add_argument("--seconds", type=float, default=180, help="limit of one module")
    parser.add_argument(
        "--elements", type=int, default=1 << 24, help="leave out modules with larger arrays"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write the generated part of this page again")
    parser.add_argument("--keep", type=Path, help="keep inputs and outputs in this folder")
    return parser.parse_args()


def chosen(options: argparse.Namespace, index: dict[str, str]) -> list[str]:
    names = sorted(n for n in index if re.search(options.only, f"{n} {index[n]}"))
    if options.names is not None:
        names = [n for n in options.names.read_text().split() if n in names]
    if options.sample is not None:
        names = sorted(random.Random(0).sample(names, min(options.sample, len(names))))
    return names


def summary(rows: dict[str, list[Any]], counted: str) -> bool:
    """Print the counts of some rows, and return whether enough of them agree."""
    counts = totals(rows)
    print(f"{counted}: " + ", ".join(f"{verdict}: {n}" for verdict, n in sorted(counts.items())))
    agree, run = counts["agree"], counts["run"]
    if run:
        print(f"{counted}: {agree} of {run} modules that XLA CPU runs agree ({agree / run:.1%})")
    return agree >= 0.99 * run


def run_all(options: argparse.Namespace, index: dict[str, str], rows: dict[str, list[Any]]) -> None:
    """Compare the modules that were chosen, and add a row for each."""
    ours = Worker([sys.executable, "-m", "benchmarks.xla_modules.ours"], options.seconds)
    peer = Worker([options.jax, "-m", "benchmarks.xla_modules.peer"], options.seconds)
    for count, name in enumerate(chosen(options, index)):
        verdict, reason, devices = compared(name, options, (ours, peer))
        rows[name] = [verdict, reason, devices, index[name]]
        if verdict in WRONG:
            said = f"{name}  {verdict} ({devices} devices): {reason[:160]}  ({index[name]})"
            print(said, flush=True)
        if options.json is not None and count % _PIECE == 0:
            options.json.write_text(json.dumps(rows, indent=1))
    ours.close()
    peer.close()


def main() -> int:
    options = parsed()
    index = json.loads((options.folder / "index.json").read_text())
    rows: dict[str, list[Any]] = {}
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text())
    with tempfile.TemporaryDirectory() as work:
        options.work = Path(work)
        run_all(options, index, rows)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.page is not None:
        write_page(options.page, rows, len(index))
    sides = {"one device": False, "several devices": True}
    enough = [
        summary({n: row for n, row in rows.items() if (row[2] > 1) is many}, title)
        for title, many in sides.items()
    ]
    return 0 if all(enough) else 1


if __name__ == "__main__":
    sys.exit(main())
