"""Run cases one after another on the ranks of one MPI job, and compare their bits with those of one process.

    python -m launch.mpirun -n DEVICES -- -m benchmarks.zoo.generated.rank_worker FOLDER...

Each folder has the outputs.npz of `our_worker`. The first rank writes ranks.txt there: `same bits`, or what is not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.zoo.generated.our_worker import run_case
from spmd.errors import SpmdError


def compared(folder: Path) -> str:
    """Raise SpmdError, on every rank alike, where the case is refused. Ranks but the first compare nothing."""
    outputs = run_case(folder)
    with np.load(folder / "outputs.npz") as alone:
        other = [
            f"out{k}"
            for k, x in enumerate(outputs)
            if np.ascontiguousarray(x).tobytes() != alone[f"out{k}"].tobytes()
        ]
    return f"other bits in {', '.join(other[:4])}" if other else "same bits"


def main(folders: list[str]) -> int:
    from launch.rank_environment import world_of_environment

    rank, _ = world_of_environment() or (0, 1)
    for name in folders:
        try:
            said = compared(Path(name))
        except SpmdError as error:
            said = f"refused {' '.join(str(error).split())[:300]}"
        if rank == 0:
            (Path(name) / "ranks.txt").write_text(said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
