"""Source text of the Triton kernels of an attention fusion."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.gpu.triton.axes import Axes, AxisKind, Blocks
from runtime.gpu.triton.blocks import blocks_for
from runtime.gpu.triton.elements import FUNCTIONS, cast
from runtime.gpu.triton.kernel import TritonKernel, decoded, kernel_with_body
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.loop import LoopWriter
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.triton.structure import AttentionStructure, structures_of, untransposed
from runtime.gpu.triton.sums import Sums
from runtime.gpu.triton.tiles import Tiles
from runtime.program.strides import StridedView
from spmd.hlo import HloComputation, HloInstruction
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS


def attention_kernels(
    fused: HloComputation,
    operands: Sequence[StridedView],
    results: Sequence[StridedView],
    *,
    tf32: bool = True,
) -> tuple[TritonKernel, ...]:
    """Return the kernels of the attention fusion that computes ``fused`` on arrays of the given layouts.

    There is one kernel for all results that sum over the same dimensions. The offsets of the views are relative to
    aligned addresses. tf32: products of f32 may round their operands to TF32 if the program allows it. Equal arguments
    give equal texts. Raises NoTritonKernelError if there are no such kernels.
    """
    structures = structures_of(fused)
    written = [root for structure in structures for root in _results(structure)]
    if set(written) != set(fused.root.elements):
        raise NoTritonKernelError("a result that is computed from no sink, or from several kinds")
    return tuple(_kernel(one, operands, results, tf32=tf32) for one in structures)


def _kernel(
    structure: AttentionStructure,
    operands: Sequence[StridedView],
    results: Sequence[StridedView],
    *,
    tf32: bool,
) -> TritonKernel:
    """Return the kernel that computes the sinks of ``structure`` and writes the results that depend on them."""
    blocks = blocks_for(structure, tf32=tf32)
    lines = Lines()

    def new_tiles(sizes: Blocks, target: Lines) -> Tiles:
        return Tiles(operands, sizes, target, tf32=tf32)

    tiles = new_tiles(blocks, lines)
    Sums(structure, blocks, tiles, lines).write()
    own = _results(structure)
    for number, root in enumerate(structure.fused.root.elements):
        if root in own:
            value, order = untransposed(root)
            tile, kind = tiles.full(value, own[root]), root.array_shape.element_type
            axes = tuple(own[root][d] for d in order)
            tiles.memory.store(
                f"r{number}", results[number], axes, cast(tile.name, tile.kind, kind)
            )
    loop = LoopWriter(structure, blocks, lines.of(Level.LOOP), new_tiles)
    return kernel_with_body(
        f"attention_{structure.mode}",
        _body(structure, blocks, lines, loop),
        operands,
        results,
        programs=_num_programs(structure, blocks),
        warps=blocks.warps,
        stages=blocks.stages,
        functions=FUNCTIONS,
    )


def _results(structure: AttentionStructure) -> dict[HloInstruction, Axes]:
    """Return the results that are computed element by element from sinks of ``structure``.

    The axes are those of the result before it is transposed.
    """
    axes = {sink.instruction: sink.axes for sink in structure.sinks}
    for x in structure.fused.post_order():
        if x.opcode in ELEMENTWISE_OPS:
            known = [axes[operand] for operand in x.operands if operand in axes]
            if known:
                axes[x] = known[0]
    values = {root: untransposed(root)[0] for root in structure.fused.root.elements}
    return {root: axes[value] for root, value in values.items() if value in axes}


def _num_programs(structure: AttentionStructure, blocks: Blocks) -> int:
    batches = math.prod(axis.size for axis in structure.axes_of_kind(AxisKind.BATCH))
    return batches * -(-structure.grid.size // blocks.grid)


def _body(
    structure: AttentionStructure, blocks: Blocks, lines: Lines, loop: LoopWriter
) -> list[str]:
    """Return the lines of the kernel function: the indices of the program, its loop, and the lines around that."""
    count = -(-structure.grid.size // blocks.grid)
    number = f"program % {count}"
    if loop.is_longer_for_later_rows:  # the longest programs start first
        number = f"({count - 1} - {number})"
    batches = [(f"b{axis.number}", axis.size) for axis in structure.axes_of_kind(AxisKind.BATCH)]
    return [
        "program = tl.program_id(0)",
        f"first = {number} * {blocks.grid}",
        *decoded(f"program // {count}", batches),
        *lines.of(Level.PROLOGUE),
        *loop.lines(),
        *lines.of(Level.EPILOGUE),
    ]
