"""Run every scenario of communicators under mpirun over real NCCL, on the GPUs that the ranks take.

Exits with 1, and names them on rank 0, where some scenarios fail on some rank.
"""

from __future__ import annotations

import json
import sys
import traceback

from collective_scenarios import SCENARIOS

from collectives.communicator.nccl.communicator import NcclCommunicator
from launch.ranks.rank_environment import world_of_environment
from launch.ranks.shutdown import run_rank
from launch.ranks.world import open_world
from launch.target.engine_choice import engine_of_ranks, gpu_of_rank
from runtime.gpu.engine import GpuEngine
from tests.runtime.gpu.on_gpu import OnGpu

#: A stream keeps the order of what is put on it, so that a second start is no mistake there.
NOT_HERE = {"a_second_start_before_the_first_is_over_is_refused"}
SECONDS = 60.0


def main() -> int:
    rank_and_size = world_of_environment()
    assert rank_and_size is not None, "run by mpirun"
    return run_rank(open_world(rank_and_size[1], SECONDS), run)


def run(world) -> int:  # type: ignore[no-untyped-def]
    gpu_of_rank(world)
    engine = engine_of_ranks(world)
    assert isinstance(engine, GpuEngine)
    driver = engine.drivers(world.rank)
    collectives = engine.collectives()
    assert isinstance(collectives, NcclCommunicator), "the ranks do not meet through NCCL"
    comm = OnGpu(collectives, driver)
    failed = {}
    for name in sorted(set(SCENARIOS) - NOT_HERE):
        try:
            SCENARIOS[name](comm)
        except AssertionError:  # a wrong result: all ranks have come to the end of it
            failed[name] = traceback.format_exc(limit=3)
    everyone = [json.loads(data) for data in world.all_gather_bytes(json.dumps(failed).encode())]
    if world.rank == 0:
        for rank, errors in enumerate(everyone):
            for name, error in errors.items():
                print(f"rank {rank}: {name}\n{error}")
        print(f"NCCL: {len(SCENARIOS) - len(NOT_HERE)} scenarios")
    return int(any(everyone))


if __name__ == "__main__":
    sys.exit(main())
