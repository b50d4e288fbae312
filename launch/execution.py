"""Run an executable step after step: on devices of this process, or as one rank of an MPI job.

Arrays are divided among the devices once, stay there between the steps, and outputs are gathered after the last one. An
output that aliases an input takes its place in the next step; where the two are divided differently, it is gathered and
divided again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.communicator.interface import Communicator
from launch.inputs import Array
from runtime.executable import Boundary, Executable, ShardedArrays
from runtime.loopback import LoopbackDevices
from runtime.shard_arrays import shard_of
from runtime.thunks.thunk import walk


@dataclass(frozen=True)
class Execution:
    """Global outputs of the last step (None on ranks other than 0), and each step's seconds on the slowest device."""

    outputs: list[Array] | None
    seconds: list[float]


def run_in_process(
    executable: Executable,
    arrays: Sequence[Array],
    *,
    feedback: Mapping[int, int],
    steps: int = 1,
    timeout_seconds: float = 300.0,
) -> Execution:
    """Every device of the program as a thread of this process. ``feedback``: output number -> input number."""
    devices = LoopbackDevices(executable.program, executable.kernels, timeout_seconds)
    inputs = [list(tiles) for tiles in executable.put(arrays).tiles]
    outputs: list[list[Array]] = []
    seconds = []
    for step in range(steps):
        if step:
            _feed_back(
                executable, feedback, inputs, outputs, range(executable.num_devices), _at_hand
            )
        start = time.perf_counter()
        outputs = devices.run(inputs)
        seconds.append(time.perf_counter() - start)
    results = ShardedArrays(tuple(map(tuple, outputs)), executable.outputs)
    return Execution(executable.get(results), seconds)


def run_on_rank(
    executable: Executable,
    communicator: Communicator,
    arrays: Sequence[Array],
    *,
    feedback: Mapping[int, int],
    steps: int = 1,
) -> Execution:
    """This rank's device of the program; every rank calls it with the same global arrays."""
    device = executable.load(communicator)
    thunks = walk(executable.program.thunks)
    communicator.prepare(
        dict.fromkeys(group for thunk in thunks for group in thunk.resource_uses())
    )
    rank = communicator.rank
    inputs = [
        [
            _tile(array, boundary, executable, rank)
            for array, boundary in zip(arrays, executable.inputs, strict=True)
        ]
    ]

    def from_all_ranks(tiles: Sequence[Array]) -> list[Array]:
        (own,) = tiles
        return tiles_like(own, communicator.all_gather_bytes(own.tobytes()))

    outputs: list[list[Array]] = []
    seconds = []
    for step in range(steps):
        if step:
            _feed_back(executable, feedback, inputs, outputs, (rank,), from_all_ranks)
        communicator.barrier()
        start = time.perf_counter()
        outputs = [device.run(inputs[0])]
        seconds.append(time.perf_counter() - start)
    return Execution(
        _gather_on_first(executable, communicator, outputs[0]), _slowest(communicator, seconds)
    )


Gather = Callable[[Sequence[Array]], list[Array]]
"""One array's tiles on this process's devices -> its tiles on all devices."""


def _at_hand(tiles: Sequence[Array]) -> list[Array]:
    """All devices are in this process."""
    return list(tiles)


def _feed_back(
    executable: Executable,
    feedback: Mapping[int, int],
    inputs: list[list[Array]],
    outputs: Sequence[Sequence[Array]],
    devices: Sequence[int],
    gather_tiles: Gather,
) -> None:
    """Replace aliased inputs of this process's ``devices`` by the outputs."""
    for output, argument in feedback.items():
        tiles = [own[output] for own in outputs]
        if executable.outputs[output] != executable.inputs[argument]:
            everyone = gather_tiles(tiles)
            whole = _whole(executable, output, everyone)
            tiles = [
                _tile(whole, executable.inputs[argument], executable, device) for device in devices
            ]
        for own, tile in zip(inputs, tiles, strict=True):
            own[argument] = tile


def _whole(executable: Executable, output: int, tiles: Sequence[Array]) -> Array:
    return executable.whole(tiles, executable.outputs[output])


def _tile(array: Array, boundary: Boundary, executable: Executable, device: int) -> Array:
    partition = device % executable.program.num_partitions
    return shard_of(array, boundary.sharding, boundary.shape, partition)


def _gather_on_first(
    executable: Executable, communicator: Communicator, own: Sequence[Array]
) -> list[Array] | None:
    """Global outputs on rank 0, one output after the other so that no more than one is there twice."""
    whole = []
    for output, tile in enumerate(own):
        gathered = communicator.gather_bytes(tile.tobytes())
        if gathered is not None:
            whole.append(_whole(executable, output, tiles_like(tile, gathered)))
    return whole if communicator.rank == 0 else None


def tiles_like(tile: Array, data: Sequence[bytes]) -> list[Array]:
    """Every device's bytes as an array of the type and shape of ``tile``, which all devices share."""
    return [np.frombuffer(one, tile.dtype).reshape(tile.shape) for one in data]


def _slowest(communicator: Communicator, seconds: Sequence[float]) -> list[float]:
    """Each step's time on the rank that took longest."""
    of_ranks = [
        json.loads(data)
        for data in communicator.all_gather_bytes(json.dumps(list(seconds)).encode())
    ]
    return [max(step) for step in zip(*of_ranks, strict=True)]
