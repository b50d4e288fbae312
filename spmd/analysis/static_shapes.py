"""Check that every value of a module has a size and is a value, as partitioning and evaluation need."""

from __future__ import annotations

from spmd.errors import UnsupportedError
from spmd.hlo.module import HloModule
from spmd.ops.inference import describe
from spmd.shape import ArrayShape, BufferShape, Shape, leaves


def require_values(module: HloModule) -> None:
    """Raise UnsupportedError naming the first instruction with an unbounded dimension or a buffer.

    Such modules are read, verified and printed, but not computed.
    """
    for instruction in module.all_instructions():
        for _, leaf in leaves(instruction.shape):
            if (problem := _problem(leaf)) != "":
                raise UnsupportedError(
                    f"{problem} is not supported in a computation: {describe(instruction)}"
                )


def _problem(leaf: Shape) -> str:
    if isinstance(leaf, BufferShape):
        return f"the buffer type {leaf}"
    if isinstance(leaf, ArrayShape) and leaf.is_unbounded:
        return f"the unbounded dimension of {leaf}"
    return ""
