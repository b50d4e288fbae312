"""Which instructions a kernel may take in at all."""

from __future__ import annotations

from spmd.hlo import HloInstruction
from spmd.passes.rewrite import has_control_edges
from spmd.shape import ArrayShape


def is_plain(x: HloInstruction) -> bool:
    """A static array in the default memory, of a value that nothing but its readers waits for."""
    shape = x.shape
    if not isinstance(shape, ArrayShape) or any(shape.dynamic):
        return False
    if shape.layout is not None and shape.layout.memory_space:
        return False
    return not has_control_edges(x)
