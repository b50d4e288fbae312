"""Many training steps with donated state on MPI ranks: does the loss follow JAX's, does memory stay what it was?

    python -m launch.mpirun -n 4 -- -m benchmarks.long_run [--steps 1000]

Runs tests/cases/gpt_dp2tp2. Prints the largest difference to JAX's losses (losses.json) over its first steps, and the
proportional set size (PSS, without code) of every rank after a tenth of the steps and after the last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import spmd
from launch.data.inputs import read_inputs
from launch.ranks.rank_environment import world_of_environment

CASE = Path(__file__).parent.parent / "tests" / "cases" / "gpt_dp2tp2"
STATE = 73
#: The relative difference that programs which sum in different orders may have after so many steps.
RTOL = 1e-4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps to run (default: 1000)")
    options = parser.parse_args()
    rank, ranks = world_of_environment() or (0, 1)
    executable = spmd.compile(spmd.load(CASE / "module.hlo"), devices=4)
    inputs = read_inputs(CASE / "inputs.npz", [one.shape for one in executable.inputs])
    state, batch = executable.put(inputs[:STATE]), executable.put(inputs[STATE:], first=STATE)
    losses, memory = [], []
    start = time.perf_counter()
    for step in range(options.steps):
        outputs = executable.run(state + batch)
        state = outputs[:STATE]
        losses += executable.get(outputs[STATE:])
        if step in (options.steps // 10, options.steps - 1):
            memory.append(resident_bytes())
    seconds = time.perf_counter() - start
    print(
        f"rank {rank}/{ranks}: PSS {memory[0] / 2**20:.1f} MiB after a tenth of the steps, "
        f"{memory[-1] / 2**20:.1f} MiB after all",
        flush=True,
    )
    grew = memory[-1] > memory[0] * 1.02 + 2**20
    if rank:
        return int(grew)
    wanted = json.loads((CASE / "losses.json").read_text())["losses"][: options.steps]
    found = [float(loss) for loss in losses[: len(wanted)]]
    worst = float(np.max(np.abs(np.array(found) / np.array(wanted) - 1)))
    print(
        f"{options.steps} steps in {seconds:.1f} s; loss {found[0]:.4f} to {float(losses[-1]):.4f}; "
        f"over {len(wanted)} steps at most {worst:.1e} of it from JAX's (allowed: {RTOL:g})"
    )
    return int(worst > RTOL or grew)


def resident_bytes() -> int:
    """Proportional set size of what the program has written: pages that ranks share count in parts.

    Code is left out: how many others on the machine map the same libraries changes from second to second.
    """
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return (sizes["Pss_Anon"] + sizes["Pss_Shmem"]) * 1024


if __name__ == "__main__":
    sys.exit(main())
