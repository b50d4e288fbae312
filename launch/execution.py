"""Run an executable step after step, on devices of this process or as one rank of an MPI job.

Arrays are divided among the devices once and stay there. An output that aliases an input takes its place in the next
step, which consumes it; where the two are divided differently, it is gathered and divided again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from launch.rank_executable import RankExecutable
from runtime.executable import Executable
from runtime.sharded_arrays import ShardedArrays


@dataclass(frozen=True)
class Execution:
    """Outputs of the last step, and each step's seconds on the slowest device."""

    outputs: ShardedArrays
    seconds: list[float]


def execute_steps(
    executable: Executable, state: ShardedArrays, steps: int, feedback: Mapping[int, int]
) -> Execution:
    """``feedback``: output number -> number of the input that it is in the next step. Collective under MPI."""
    outputs, elapsed = _timed(executable, state)
    seconds = [elapsed]
    for _ in range(1, steps):
        state = fed_back(state, outputs, feedback)
        del outputs  # what is not fed back need not outlive the step
        outputs, elapsed = _timed(executable, state)
        seconds.append(elapsed)
    return Execution(outputs, _slowest(executable, seconds))


def time_steps(executable: Executable, state: ShardedArrays, steps: int) -> list[float]:
    """Seconds of each of ``steps`` equal steps: what a step consumes is put in its place again before the next."""
    spare = [[np.asarray(own[i]) for i in executable.donated] for own in state.tiles]
    seconds = []
    for _ in range(steps):
        seconds.append(_timed(executable, state)[1])
        for k, i in enumerate(executable.donated):
            again = executable.place([[own[k]] for own in spare], first=i)
            state = state[:i] + again + state[i + 1 :]
    return _slowest(executable, seconds)


def fed_back(
    inputs: ShardedArrays, outputs: ShardedArrays, feedback: Mapping[int, int]
) -> ShardedArrays:
    """``inputs`` with outputs in the places that ``feedback`` says."""
    order = list(range(len(inputs)))
    for output, argument in feedback.items():
        order[argument] = len(inputs) + output
    return (inputs + outputs).pick(order)


def _timed(executable: Executable, state: ShardedArrays) -> tuple[ShardedArrays, float]:
    fitted = executable.fit(state)
    if isinstance(executable, RankExecutable):
        executable.communicator.barrier()
    start = time.perf_counter()
    outputs = executable.run(fitted)
    return outputs, time.perf_counter() - start


def _slowest(executable: Executable, seconds: Sequence[float]) -> list[float]:
    """Each step's time on the rank that took longest."""
    if not isinstance(executable, RankExecutable):
        return list(seconds)
    data = json.dumps(list(seconds)).encode()
    of_ranks = [json.loads(other) for other in executable.communicator.all_gather_bytes(data)]
    return [max(step) for step in zip(*of_ranks, strict=True)]
