"""Relative costs of the ways to compute a convolution on the tile unit, in multiplications of the unit."""

from __future__ import annotations

from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL

#: To split an element; to turn it, too; to add to an element of the result that has been written before (measured).
SPLIT, TURN_AND_SPLIT, ADD = 45.0, 70.0, 25.0
#: Of blocks' rows or columns: 16 that are left over take as long as so many of 32 (each tile is loaded for fewer).
_LEFT_OVER = 20


def filled(count: int) -> int:
    """Rows or columns of whole blocks that take as long as ``count``."""
    whole, left = divmod(count, PANEL)
    return whole * PANEL + (0 if not left else _LEFT_OVER if left <= LINES else PANEL)
