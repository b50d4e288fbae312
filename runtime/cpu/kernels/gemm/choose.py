"""Choice of the algorithm of a matrix product: the type of its sums, and whether the tile unit computes it.

If there is no tile unit, vector instructions for narrow types may take its place.
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
    """Return the kernel by which this machine computes products of sizes m, k and n, or None if there is none.

    ``types`` are those of lhs, rhs and result. ``tf32`` tells that the program allows products of numbers rounded to
    TF32. Integers of more than 8 bits, which TF32 does not represent, are never rounded.
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
    """Return the type in which ``depth`` products are summed, or None if there is no kernel.

    It is a float or complex type, unless integers have sums that f64 does not represent exactly, or that the result's
    type does not represent: these are summed in the result's type, modulo its range. There is no kernel for results of
    type pred, for integer results of other operands, and for integers below 8 bits with sums of the last kind.
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
    types = [t.accumulator.numpy for t in (lhs, rhs, result) if t is not PrimitiveType.PRED]
    return PrimitiveType.from_numpy(np.result_type(*types))


def _largest(kind: PrimitiveType, *, negative: bool = True) -> float:
    """Return the largest magnitude of an integer type, or, unless ``negative``, its largest number."""
    if not kind.is_signed_integer:
        return 2.0**kind.bits - 1
    return 2.0 ** (kind.bits - 1) - (0 if negative else 1)


def suits_tiles(
    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType], sizes: tuple[int, int, int]
) -> bool:
    """Return whether the tile unit, or vector instructions in its place, should compute such products.

    ``sizes`` are m, k and n, and ``types`` those of lhs, rhs and result. Products of f32 by f32 do not count, because
    the function that takes the place of BLAS's sgemm uses the unit for them.
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
    """Return the unit of this machine that multiplies matrices of ``types`` without conversion, or None.

    Only the tile unit multiplies f32 by parts, because vectors of f32 are faster than three products of parts.
    """
    unit = narrow_unit(is_float=types.is_float)
    return unit if unit is Unit.TILES or types.parts == types.rhs_parts == 1 else None
