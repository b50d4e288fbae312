"""Consecutive steps on arrays that stay on their devices."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.arrays.resident import NO_ARRAY, DeviceArray
from runtime.arrays.sharded_arrays import ShardedArrays
from runtime.executable import Executable


class StepLoop:
    """Loop of steps. Before each step, outputs that feed inputs become these inputs and the other outputs are released.

    If no caller holds arrays of the loop, a step creates no Python object: its lists are overwritten, and arrays of
    outputs are reused (``resident.py``). An output whose sharding differs from its input's is gathered and divided
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
        self._set(argument, [NO_ARRAY] * len(self._inputs))  # this frees its slot
        self._set(argument, [tile for (tile,) in self._executable.put(arrays, argument).tiles])

    def _set(self, argument: int, tiles: list[DeviceArray]) -> None:
        for inputs, tile in zip(self._inputs, tiles, strict=True):
            inputs[argument] = tile
