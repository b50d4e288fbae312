"""Outputs of a module's entry that take the places of inputs."""

from __future__ import annotations

from spmd.analysis.donors import match_donors
from spmd.hlo import HloModule
from spmd.shape import ShapeIndex, array_leaves


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
