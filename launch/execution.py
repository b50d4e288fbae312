"""Run an executable step after step, on devices of this process or as one rank of an MPI job.

Arrays are divided among the devices once and stay there. An output that aliases an input becomes that input of the next
step, which consumes it; if the two are divided differently, it is gathered and divided again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np

from runtime.arrays.sharded_arrays import ShardedArrays
from runtime.arrays.slots import NO_ARRAY, DeviceArray
from runtime.executable import Executable
from spmd.lazy_dataclass import dataclass


class StepLoop:
    """Loop of steps. Before each step, outputs that feed inputs become these inputs and the other outputs are released.

    If no caller holds arrays of the loop, a step creates no Python object: its lists are overwritten, and arrays of
    outputs are reused (arrays/slots.py). An output whose sharding differs from its input's is gathered and divided
    again, which does create objects.
    """

    def __init__(
        self, executable: Executable, state: ShardedArrays, feedback: Mapping[int, int]
    ) -> None:
        """``feedback``: output number -> number of the input that it feeds. Raises RunError as ``fit`` does."""
        self._executable = executable
        self._inputs = [list(own) for own in executable.fit(state).tiles]
        self._outputs = [[NO_ARRAY] * len(executable.outputs) for _ in self._inputs]
        as_they_are: list[tuple[int, int]] = []
        anew: list[tuple[int, int]] = []
        for output, argument in feedback.items():
            same_spec = executable.outputs[output] == executable.inputs[argument]
            (as_they_are if same_spec else anew).append((output, argument))
        self._as_they_are, self._anew = tuple(as_they_are), tuple(anew)
        self._has_run = False

    def prepare(self) -> None:
        """Make the inputs of the next step. Every rank calls it."""
        if not self._has_run:
            return
        for output, argument in self._anew:
            self._divide_anew(output, argument)
        for inputs, outputs in zip(self._inputs, self._outputs, strict=True):
            for output, argument in self._as_they_are:
                inputs[argument] = outputs[output]
            for number in range(len(outputs)):
                outputs[number] = NO_ARRAY
        self._has_run = False

    def run(self) -> None:
        """Run one step, which consumes the donated inputs. Call ``prepare`` before each one."""
        devices = self._executable.step(self._inputs)
        for device, outputs in zip(devices, self._outputs, strict=True):
            for number, slot in enumerate(device.results):
                outputs[number] = slot.array
        self._has_run = True

    @property
    def outputs(self) -> ShardedArrays:
        """Outputs of the last step, between ``run`` and ``prepare``."""
        return ShardedArrays(tuple(map(tuple, self._outputs)), self._executable.outputs)

    def _divide_anew(self, output: int, argument: int) -> None:
        arrays = self._executable.get(self.outputs[output : output + 1], "all")
        self._set(argument, [NO_ARRAY] * len(self._inputs))  # frees the slot of the argument
        self._set(argument, [tile for (tile,) in self._executable.put(arrays, argument).tiles])

    def _set(self, argument: int, tiles: list[DeviceArray]) -> None:
        for inputs, tile in zip(self._inputs, tiles, strict=True):
            inputs[argument] = tile


@dataclass(frozen=True)
class Execution:
    """Outputs of the last step, and each step's seconds on the slowest device."""

    outputs: ShardedArrays
    seconds: list[float]


def execute_steps(
    executable: Executable,
    state: ShardedArrays,
    steps: int,
    feedback: Mapping[int, int],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Execution:
    """Run ``steps`` steps. ``feedback``: number of an output -> number of the input that it becomes in the next step.
    Collective under MPI.

    ``around``: a context for each step, between the barriers at which its ranks begin and end.
    """
    loop = StepLoop(executable, state, feedback)
    seconds = []
    for _ in range(steps):
        loop.prepare()
        seconds.append(_timed(executable, partial(_run_within, around, loop)))
    return Execution(loop.outputs, _joined(executable, seconds, max))


def _run_within(around: Callable[[], AbstractContextManager[None]], loop: StepLoop) -> None:
    with around():
        loop.run()


def time_steps(
    executable: Executable,
    state: ShardedArrays,
    steps: int,
    of_ranks: Callable[[Sequence[float]], float] = max,
) -> list[float]:
    """Return the seconds of each of ``steps`` equal steps: inputs that a step consumes are restored before the next
    one.

    ``of_ranks``: combines the ranks' times of one step.
    """
    spare = [[np.asarray(own[i]) for i in executable.donated] for own in state.tiles]
    seconds = []
    for _ in range(steps):
        fitted = executable.fit(state)
        seconds.append(_timed(executable, partial(executable.run, fitted)))
        for k, i in enumerate(executable.donated):
            again = executable.put_tiles([[own[k]] for own in spare], first=i)
            state = state[:i] + again + state[i + 1 :]
    return _joined(executable, seconds, of_ranks)


def _timed(executable: Executable, step: Callable[[], object]) -> float:
    """Return the seconds of a step that all ranks begin at the same time. The next work begins after all have read the
    clock.

    Otherwise ranks that share cores would slow each other down.
    """
    world = executable.world
    if world is not None:
        world.barrier()
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    if world is not None:
        world.barrier()
    return seconds


def _joined(
    executable: Executable,
    seconds: Sequence[float],
    of_ranks: Callable[[Sequence[float]], float],
) -> list[float]:
    world = executable.world
    if world is None:
        return list(seconds)
    data = json.dumps(list(seconds)).encode()
    found = [json.loads(other) for other in world.all_gather_bytes(data)]
    return [of_ranks(step) for step in zip(*found, strict=True)]
