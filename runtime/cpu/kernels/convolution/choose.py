"""Choice of the kernel of a convolution without base dilation: adjacent groups, the tile unit, vectors or panels."""

from __future__ import annotations

import math
from functools import lru_cache

from runtime.cpu.kernels.convolution import tuning
from runtime.cpu.kernels.convolution.ir.panel_ir import SPATIAL
from runtime.cpu.kernels.convolution.tile_gradient import gradient_tiles
from runtime.cpu.kernels.convolution.tile_gradient_geometry import gradient_geometry
from runtime.cpu.kernels.convolution.tile_image import image_tiles
from runtime.cpu.kernels.convolution.tile_image_geometry import geometry
from runtime.cpu.kernels.convolution.vectors import vector_plan
from runtime.cpu.kernels.gemm.choose import compute_type
from runtime.cpu.libraries.blas import gemm_function
from runtime.program.convolution_matrices import CanonicalConvolution
from runtime.program.records.convolution import (
    GradientTiles,
    GroupConvolutionKernel,
    ImageTiles,
    PanelConvolutionKernel,
    UndividedConvolution,
)
from spmd.shape import PrimitiveType


def product_type(
    kinds: tuple[PrimitiveType, PrimitiveType, PrimitiveType], depth: int, rank: int
) -> PrimitiveType | None:
    """Return the type in which products of x and w are summed, given ``kinds`` of x, w and the result.

    ``depth`` is the number of products per sum and ``rank`` the number of spatial dimensions. Returns None if BLAS has
    no such products, or if there are more than three spatial dimensions.
    """
    compute = None if rank > SPATIAL else compute_type(*kinds, depth)
    return None if compute is None or gemm_function(compute) is None else compute


def choose_kernel(
    canonical: CanonicalConvolution, *, tiled: bool = True
) -> UndividedConvolution | None:
    """Return the kernel of a convolution in canonical layout, or None if an operand needs another layout.

    x, w and the result must have one type, that of the sums. Unless ``tiled``, the kernel has no plan for the tile
    unit; whether this machine has that unit does not matter.
    """
    x, w, out = canonical.x, canonical.w, canonical.out
    compute = x.element_type
    item = compute.byte_size
    side_by_side = all(view.strides[0] == item for view in (x, w, out))
    if out.dims[0] > 1 and side_by_side and canonical.window.rank <= 2:
        return GroupConvolutionKernel(compute, canonical.window)
    rows, depth = canonical.rows(), canonical.depth()
    if depth is None:
        return None
    # Panels are packed in runs, which must be contiguous in x along its features or its batch.
    features, batch = len(w.dims) - 2, 1
    by_features = depth[-1] == features and (x.dims[-1] == 1 or x.strides[-1] == item)
    by_batch = rows[-1] == batch and (x.dims[1] == 1 or x.strides[1] == item)
    if not by_features and not by_batch:
        return None
    inside = by_features and (not by_batch or x.dims[-1] >= x.dims[1])
    row_sizes, depth_sizes = [out.dims[d] for d in rows], [w.dims[d] for d in depth]
    inner, outer = (depth_sizes, row_sizes) if inside else (row_sizes, depth_sizes)
    total = x.byte_size + w.byte_size + out.byte_size
    panel_bytes = min(total // tuning.PANEL_PART, tuning.MOST_PANEL_BYTES)
    panel = max(panel_bytes, tuning.LEAST_PANEL_BYTES) // item
    most_inside = min(tuning.MOST_INSIDE, max(panel // tuning.INSIDE_PART, tuning.LEAST_INSIDE))
    runs = min(math.prod(inner[:-1]), max(most_inside // inner[-1], 1))
    small = min(total // tuning.SMALL_TILE_PART, tuning.SMALL_TILE_BYTES)
    most_multiplied = tuning.MOST_MULTIPLIED, tuning.MOST_MULTIPLIED_GRADIENT
    budget = max(total // tuning.PANEL_PART, small, tuning.LEAST_TILE_BYTES)
    return PanelConvolutionKernel(
        compute,
        canonical.window,
        rows,
        depth,
        inside,
        inner[-1],
        runs,
        min(math.prod(outer), max(panel // (runs * inner[-1]), 1)),
        _tiles(canonical, min(budget, tuning.MOST_TILE_BYTES), most_multiplied) if tiled else None,
        vector_plan(canonical.window, x, w, out, channels_inside=inside),
    )


@lru_cache(64)
def _tiles(
    canonical: CanonicalConvolution, budget: int, most_multiplied: tuple[float, float]
) -> ImageTiles | GradientTiles | None:
    """Return the cheapest plan for the tile unit within ``budget`` bytes of packed operands, or None.

    There is none unless the arrays are f32 with strides >= 0, features or images are contiguous, and padding takes only
    a part of the unit's multiplications: ``most_multiplied`` bounds the multiplications per useful product, for the
    algorithm of images and for that of gradients.
    """
    x, w, out = canonical.x, canonical.w, canonical.out
    if x.element_type is not PrimitiveType.F32 or min(*x.strides, *w.strides, *out.strides) < 0:
        return None
    batch, inputs, features = out.dims[1], x.dims[-1], out.dims[-1]
    item = x.element_type.byte_size
    plans: list[tuple[float, ImageTiles | GradientTiles] | None] = []
    image = geometry(canonical.window, x.dims, out.dims)
    if image is not None and (inputs == 1 or x.strides[-1] == item):
        plans.append(image_tiles(image, batch, features, budget, most_multiplied[0]))
    gradient = gradient_geometry(canonical.window, x.dims, out.dims)
    contiguous = (batch == 1 or x.strides[1] == item) and (features == 1 or w.strides[-1] == item)
    if gradient is not None and contiguous:
        sizes = batch, inputs, features
        plans.append(gradient_tiles(gradient, *sizes, budget, most_multiplied[1]))
    found = [plan for plan in plans if plan is not None]
    return min(found, key=lambda plan: plan[0])[1] if found else None
