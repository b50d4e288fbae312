"""Run cases on devices of this process, one for each line of standard input that names a folder.

    python -m benchmarks.zoo.generated.our_worker

Each folder is one that `jax_worker` wrote; it gets outputs.npz. Each answer is a line of standard output: `ran`,
`refused` with the message, or `crashed` with the end of the traceback.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import numpy as np

import spmd
from launch.inputs import read_inputs, write_arrays
from spmd.errors import SpmdError


def run_case(folder: Path) -> list[np.ndarray]:
    case = json.loads((folder / "case.json").read_text())
    executable = spmd.compile(spmd.load(folder / "module.hlo"), case["devices"], timeout=60)
    inputs = read_inputs(folder / "inputs.npz", [boundary.shape for boundary in executable.inputs])
    return [np.asarray(x) for x in executable.run(*inputs)]


def answer(folder: Path) -> str:
    try:
        write_arrays(folder / "outputs.npz", "out", run_case(folder))
        return "ran"
    except SpmdError as error:
        return f"refused {' '.join(str(error).split())[:300]}"
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        (folder / "traceback.txt").write_text(traceback.format_exc())
        return f"crashed {traceback.format_exc().strip().splitlines()[-1][:300]}"


def main() -> int:
    for line in sys.stdin:
        print(answer(Path(line.strip())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
