"""Choice of block sizes of attention kernels."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.gpu.triton.axes import AxisKind, Blocks, padded
from runtime.gpu.triton.structure import AttentionStructure
from spmd.hlo import HloInstruction
from spmd.ops.attrs import DotAttrs
from spmd.ops.product_precision import allows_tf32
from spmd.shape import PrimitiveType

#: Depth up to which the accumulators of a block of 128 rows fit the registers of 4 warps.
_SHALLOW = 64
#: Depth up to which they fit those of 8 warps.
_MEDIUM = 128


def blocks_for(structure: AttentionStructure, *, tf32: bool) -> Blocks:
    """Return the block sizes of the kernel of ``structure``. tf32: products of f32 may round operands to TF32.

    Blocks are as large as registers allow without spills on sm_90 (tests/runtime/gpu/triton/test_cubins.py). No GPU
    has measured them yet.
    """
    depth = _depth(structure)
    kinds = {
        operand.array_shape.element_type for dot in _dots(structure) for operand in dot.operands
    }
    exact = any(not (tf32 and allows_tf32(dot.attrs_as(DotAttrs))) for dot in _dots(structure))
    online = structure.softmax is not None
    if PrimitiveType.F32 not in kinds:
        most = _narrow(depth, online=online)
    elif exact:
        most = Blocks(32, 32, 4, 1)
    else:
        most = _tf32(depth, online=online)
    return Blocks(
        min(most.grid, padded(structure.grid.size)),
        min(most.loop, padded(structure.loop.size)),
        most.warps,
        most.stages,
    )


def _narrow(depth: int, *, online: bool) -> Blocks:
    """Return the blocks for products of bf16 or f16."""
    if depth <= _SHALLOW:
        return Blocks(128, 64, 4, 3) if online else Blocks(64, 64, 4, 2)
    if depth <= _MEDIUM:
        return Blocks(128, 64, 8, 3) if online else Blocks(128, 32, 8, 2)
    return Blocks(64, 32, 8, 2) if online else Blocks(64, 16, 8, 2)


def _tf32(depth: int, *, online: bool) -> Blocks:
    """Return the blocks for products of f32 that may be rounded to TF32."""
    if depth <= _SHALLOW:
        return Blocks(64, 32, 4, 2)
    if online:
        return Blocks(64, 32, 8, 2)
    return Blocks(32, 32, 8, 2) if depth <= _MEDIUM else Blocks(32, 16, 8, 1)


def _dots(structure: AttentionStructure) -> Iterator[HloInstruction]:
    """Yield the products that the kernel computes."""
    yield from structure.products
    for sink in structure.sinks:
        if sink.other is not None:
            yield sink.instruction


def _depth(structure: AttentionStructure) -> int:
    """Return the largest padded size of a depth axis."""
    sizes = [16]
    for product in structure.products:
        contracting = product.attrs_as(DotAttrs).lhs_contracting
        sizes += [padded(product.operand(0).dims[d]) for d in contracting]
    for sink in structure.sinks:
        sizes += [padded(axis.size) for axis in sink.axes if axis.kind is AxisKind.DEPTH]
    return max(sizes)
