"""Relative costs of a convolution's algorithms on the tile unit, in multiplications of the unit."""

from __future__ import annotations

from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL

#: Costs of splitting an element, of also transposing it, and of accumulating to an element of the result (measured).
SPLIT, TURN_AND_SPLIT, ADD = 45.0, 70.0, 25.0
#: Cost of 16 remaining rows or columns of a block, in rows of full blocks: each tile is loaded for fewer products.
_LEFT_OVER = 20


def filled(count: int) -> int:
    """Return the rows or columns of full blocks that take as long as ``count``."""
    full, left = divmod(count, PANEL)
    return full * PANEL + (0 if not left else _LEFT_OVER if left <= LINES else PANEL)
