"""Eligibility of instructions for kernels."""

from __future__ import annotations

from spmd.hlo import HloInstruction
from spmd.passes.rewrite import has_control_edges
from spmd.shape import ArrayShape


def is_plain(x: HloInstruction) -> bool:
    """Return whether ``x`` is a static array in the default memory without control edges."""
    shape = x.shape
    if not isinstance(shape, ArrayShape) or any(shape.dynamic):
        return False
    if shape.layout is not None and shape.layout.memory_space:
        return False
    return not has_control_edges(x)
