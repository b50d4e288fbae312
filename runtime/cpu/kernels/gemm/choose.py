"""Choice of how a matrix product is computed: the type it is summed in, and whether the tile unit computes it.

If there is no such unit, vectors of narrow types may take its place.
"""

from __future__ import annotations

import numpy as np

from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.tile_types import TILE_TYPES, TileTypes, most_depth
from runtime.cpu.kernels.gemm.tile_unit import Unit, narrow_unit
from runtime.program.records.dot import DotKernel
from spmd.shape import PrimitiveType


def plan_dot(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
    *,
    tf32: bool = False,
) -> DotKernel | None:
    """Return the product of sizes m, k, n and types of operands and result as this machine computes it.

    `tf32`: allowed by the program. Integers of more than 8 bits, which TF32 does not hold, are never rounded. Returns
    None if there is no type to sum in.
    """
    compute = compute_type(*types, sizes[1])
    if compute is None:
        return None
    tf32 &= compute is PrimitiveType.F32 and not any(
        kind.is_integer and kind.bits > 8 for kind in types[:2]
    )
    return DotKernel(batch, *sizes, *types, compute, suits_tiles(types, sizes), tf32)


def compute_type(
    lhs: PrimitiveType, rhs: PrimitiveType, result: PrimitiveType, depth: int
) -> PrimitiveType | None:
    """Return the type to sum in: a float if that is exact for integers too, else the integer itself.

    Returns None if there is no kernel (sums of truth values, small integers of great depth).
    """
    if result is PrimitiveType.PRED:
        return None
    if result.is_integer:
        if not (lhs.is_integer and rhs.is_integer):
            return None
        largest = depth * _largest(lhs) * _largest(rhs)
        if largest > _largest(result, negative=False) or largest > 2.0**53:
            return result if min(lhs.bits, rhs.bits, result.bits) >= 8 else None
        return PrimitiveType.F32 if largest <= 2.0**24 else PrimitiveType.F64
    types = [
        np.dtype(np.float32) if t.is_floating and t.bits < 32 else t.numpy
        for t in (lhs, rhs, result)
        if t is not PrimitiveType.PRED
    ]
    return PrimitiveType.from_numpy(np.result_type(*types))


def _largest(kind: PrimitiveType, *, negative: bool = True) -> float:
    """Return the largest magnitude of an integer type, or of its positive numbers."""
    if not kind.is_signed_integer:
        return 2.0**kind.bits - 1
    return 2.0 ** (kind.bits - 1) - (0 if negative else 1)


def suits_tiles(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType], sizes: tuple[int, int, int]
) -> bool:
    """Return whether the tile unit, or its vector substitute, computes products of these types and sizes m, k and n.

    f32 products are excluded: the replacement of BLAS's function uses the unit.
    """
    tile_types, (m, k, n) = TileTypes(*types), sizes
    splits = tile_types.parts != tile_types.rhs_parts
    if tile_types not in TILE_TYPES or tile_types.rhs_parts == tile_types.parts > 1:
        return False
    if splits and (n if tile_types.parts > 1 else m) < tuning.SPLIT_LEAST_LINES:
        return False
    pays = m * k * n >= (tuning.SPLIT_LEAST_PRODUCTS if splits else tuning.NARROW_LEAST_PRODUCTS)
    fits = tile_types.result.byte_size == 4 or k <= most_depth(tile_types)
    unit = unit_of(tile_types)
    if unit is Unit.VECTORS and tile_types.is_float:
        pays = pays and k >= tuning.BF16_LEAST_DEPTH and min(m, n) >= tuning.BF16_LEAST_LINES
    return pays and fits and unit is not None


def unit_of(types: TileTypes) -> Unit | None:
    """Return the unit that multiplies such matrices here without conversion; None if there is none.

    Only the tile unit multiplies parts: vectors of f32 take less time than three products of parts.
    """
    unit = narrow_unit(is_float=types.is_float)
    return unit if unit is Unit.TILES or types.parts == types.rhs_parts == 1 else None
