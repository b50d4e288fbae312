"""Choice of block sizes of the kernels of ragged products."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.triton.axes import padded
from runtime.gpu.triton.kernel import ALIGNED
from runtime.gpu.triton.products import TileProduct
from runtime.gpu.triton.ragged_axes import RaggedAxes
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class RaggedBlocks:
    """Sizes of the blocks along rows, columns and depth, and how the kernel is compiled.

    warps: warps of a program. stages: iterations whose loads are in flight at once.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def ragged_blocks(
    axes: RaggedAxes, dot: TileProduct, factors: Sequence[StridedView]
) -> RaggedBlocks:
    """Return the block sizes for products ``dot`` of ``factors`` along ``axes``.

    Blocks are as large as registers allow without spills on sm_90 (tests/runtime/gpu/triton/test_ragged_cubins.py), and
    not much larger than a group of average size. No GPU has measured them yet.
    """
    if dot.kind is not PrimitiveType.F32:
        # Elements that no vector load reads pass through registers, one by one.
        most = RaggedBlocks(128, 128, 64 if all(map(_has_vectors, factors)) else 32, 8, 3)
    elif dot.tf32:
        most = RaggedBlocks(128, 64, 32, 8, 3)
    else:
        most = RaggedBlocks(64, 64, 16, 8, 2)
    average = -(-axes.ragged.size // max(1, axes.groups.size))
    rows, depth = axes.rows.size, axes.depth.size
    if axes.contracts:
        depth = average
    else:
        rows = average
    return RaggedBlocks(
        min(most.rows, padded(rows)),
        min(most.columns, padded(axes.columns.size)),
        min(most.depth, padded(depth)),
        most.warps,
        most.stages,
    )


def _has_vectors(view: StridedView) -> bool:
    """Return whether vectors of 16 bytes can be read from ``view``: its first element and its rows are aligned."""
    item = view.element_type.byte_size
    return view.offset % ALIGNED == 0 and all(
        stride % ALIGNED == 0 or stride == item for stride in view.strides
    )
