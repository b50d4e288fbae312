"""Run cases on devices of this process, one for each line of standard input that names a folder.

    python -m benchmarks.zoo.generated.our_worker

Each folder is one that `jax_worker` wrote; it gets outputs.npz. Each answer is a line of standard output: the outcome
(agrees, rounding, differs, refused, crashed) and what is said of it.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import numpy as np

import spmd
from benchmarks.zoo.judge import Ran, judge
from benchmarks.zoo.results import verdict_of
from launch.data.inputs import read_inputs, write_arrays
from launch.entry import Entry
from spmd.errors import SpmdError

#: Longest text of an answer.
_MOST = 300


def run_case(folder: Path) -> tuple[str, str]:
    """Return the outcome and what is said of it."""
    case = json.loads((folder / "case.json").read_text())
    module = spmd.load(folder / "module.hlo")
    executable = spmd.compile(module, case["devices"], options=spmd.CompileOptions(check=True))
    entry = Entry.of_executable(executable)
    inputs = read_inputs(folder / "inputs.npz", entry.inputs)
    outputs = [np.asarray(x) for x in executable.run(*inputs)]
    write_arrays(folder / "outputs.npz", "out", outputs)
    ran = Ran(module, entry, case["devices"], inputs, outputs)
    paths = [leaf["path"] for leaf in case["outputs"]]
    checks, _ = judge(ran, folder / "jax.npz", paths, case["runs"])
    return verdict_of([check.as_json() for check in checks])


def answer(folder: Path) -> str:
    try:
        outcome, said = run_case(folder)
    except SpmdError as error:
        outcome, said = "refused", str(error)
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        (folder / "traceback.txt").write_text(traceback.format_exc())
        outcome, said = "crashed", traceback.format_exc().strip().splitlines()[-1]
    return " ".join(f"{outcome} {said}".split())[:_MOST]


def main() -> int:
    for line in sys.stdin:
        print(answer(Path(line.strip())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
