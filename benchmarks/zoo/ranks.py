"""Run cases of the zoo on the ranks of one MPI job and compare their bits with those of the run in one process.

    python -m launch.mpirun -n 4 -- -m benchmarks.zoo.ranks FOLDER...

Each folder is one on which `ours` has run; it gets ranks.json. A refusal, on which all ranks agree, is written there,
and the next folder follows; any other error ends the job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import spmd
from benchmarks.zoo.ours import module_file
from launch.data.inputs import Array, read_inputs, to_storage
from launch.data.npz import StoredArrays
from launch.execution import time_steps
from launch.ranks.agreement import AgreedError
from launch.ranks.rank_environment import world_of_environment

WARM_UP, STEPS = 2, 5


def run_case(folder: Path, ranks: int) -> dict[str, object]:
    """Collective: every rank calls it; rank 0 gets the result."""
    executable = spmd.compile(spmd.load(module_file(folder)), ranks)
    inputs = read_inputs(folder / "inputs.npz", [place.shape for place in executable.inputs])
    outputs = executable.run(*inputs)
    times = time_steps(executable, executable.put(inputs), WARM_UP + STEPS)[WARM_UP:]
    other = others(outputs, StoredArrays(folder / "outputs.npz")) if outputs else []
    said = f"other bits in {', '.join(other[:4])}" if other else "same bits"
    return {"ranks": said, "step_ms": 1e3 * min(times)}


def others(outputs: list[Array], alone: StoredArrays) -> list[str]:
    """Return the names of the outputs that have other bits than those of one process."""
    return [
        f"out{k}"
        for k, output in enumerate(outputs)
        if to_storage(output).tobytes() != alone[f"out{k}"].tobytes()
    ]


def main(folders: list[str]) -> int:
    world = world_of_environment()
    if world is None:
        print("start it under mpirun: python -m launch.mpirun -n N -- -m benchmarks.zoo.ranks ...")
        return 2
    rank, size = world
    for name in folders:
        try:
            found = run_case(Path(name), size)
        except AgreedError as error:
            found = {"ranks": f"refused: {error}"}
        if rank == 0:
            (Path(name) / "ranks.json").write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
