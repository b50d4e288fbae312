"""Outputs of a module's entry that take the places of inputs."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.analysis.donors import match_donors
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, Shape, ShapeIndex, TokenShape, as_array, leaves


def array_leaves(shape: Shape) -> Iterator[tuple[ShapeIndex, ArrayShape]]:
    """Yield the arrays of a shape; tokens are none of the caller's."""
    for index, leaf in leaves(shape):
        if not isinstance(leaf, TokenShape):
            yield index, as_array(leaf)


def aliased_outputs(module: HloModule) -> dict[int, int]:
    """Return the number of the input leaf for each output leaf that shares its memory: by an alias of the header, or
    because the output uses the memory of a donated input.
    """
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
