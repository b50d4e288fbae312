"""Paths of outputs in the user's program, as far as the module states them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spmd.hlo.opcode import Opcode
from spmd.shape import leaves

if TYPE_CHECKING:
    from spmd.hlo import HloInstruction, HloModule


def output_paths(module: HloModule, feedback: Mapping[int, int]) -> list[str]:
    """Return a path for each leaf of the result, "" where the module says nothing.

    An output that aliases an input (`feedback`: output number -> input number) has that input's path in the arguments,
    as in ``state.params['Dense_0']['kernel']``; any other has the name of the JAX operation that makes it.
    """
    inputs = [
        parameter.annotations.metadata.op_name if not index else ""
        for parameter in module.entry.parameters
        for index, _ in leaves(parameter.shape)
    ]
    paths = []
    for number, (index, _) in enumerate(leaves(module.entry.root.shape)):
        donor = inputs[feedback[number]] if number in feedback else ""
        maker = _maker(module.entry.root, index).annotations.metadata.op_name
        paths.append((donor or maker).replace("\\'", "'"))
    return paths


def _maker(value: HloInstruction, index: tuple[int, ...]) -> HloInstruction:
    """Return the instruction that makes the part `index` of `value`, as far as tuples are written out."""
    for number in index:
        if value.opcode is not Opcode.TUPLE:
            break
        value = value.operands[number]
    return value
