"""A program as its caller sees it: global arrays in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.arrays.sharded_arrays import Boundary
from runtime.executable import Executable
from spmd.analysis.donors import match_donors
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, Shape, ShapeIndex, TokenShape, as_array, leaves


@dataclass(frozen=True, slots=True)
class Entry:
    """``inputs`` and ``outputs``: every array leaf of the entry's parameters and result, in order.

    ``feedback``: output number -> number of the input that it aliases, whose place it takes in the next step.
    """

    name: str
    inputs: tuple[ArrayShape, ...]
    outputs: tuple[ArrayShape, ...]
    feedback: dict[int, int]

    @staticmethod
    def of_module(module: HloModule) -> Entry:
        """Return the entry of an unpartitioned module, or of one device's program, whose arrays are tiles."""
        inputs = [s for p in module.entry.parameters for _, s in array_leaves(p.shape)]
        outputs = [s for _, s in array_leaves(module.entry.root.shape)]
        feedback = _static(aliased_outputs(module), outputs)
        return Entry(module.name, tuple(inputs), tuple(outputs), feedback)

    @staticmethod
    def of_boundaries(
        module: HloModule, specs: tuple[Sequence[Boundary], Sequence[Boundary]]
    ) -> Entry:
        """Return the entry of one device's program; ``specs`` state how its tiles make up global arrays."""
        inputs, outputs = (tuple(one.shape for one in side) for side in specs)
        return Entry(module.name, inputs, outputs, _static(aliased_outputs(module), outputs))

    @staticmethod
    def of_executable(executable: Executable) -> Entry:
        return Entry.of_boundaries(executable.module, (executable.inputs, executable.results))


def _static(feedback: dict[int, int], outputs: Sequence[ArrayShape]) -> dict[int, int]:
    """Return ``feedback`` without what takes a donor's place but never an input's: bounded outputs, and sizes."""
    return {
        output: argument
        for output, argument in feedback.items()
        if output < len(outputs) and not any(outputs[output].dynamic)
    }


def array_leaves(shape: Shape) -> Iterator[tuple[ShapeIndex, ArrayShape]]:
    """Yield the arrays of a shape; tokens are none of the caller's."""
    for index, leaf in leaves(shape):
        if not isinstance(leaf, TokenShape):
            yield index, as_array(leaf)


def aliased_outputs(module: HloModule) -> dict[int, int]:
    """Output leaf number -> input leaf number: aliases, and donors with the results that take their places."""
    outputs = {index: k for k, (index, _) in enumerate(array_leaves(module.entry.root.shape))}
    inputs: dict[tuple[int, ShapeIndex], int] = {}
    for number, parameter in enumerate(module.entry.parameters):
        for index, _ in array_leaves(parameter.shape):
            inputs[number, index] = len(inputs)
    pairs = [
        (alias.output_index, (alias.parameter, alias.parameter_index))
        for alias in module.input_output_alias
    ]
    pairs += [
        (output, (donor.parameter, donor.parameter_index)) for donor, output in match_donors(module)
    ]
    return {outputs[output]: inputs[parameter] for output, parameter in pairs}
