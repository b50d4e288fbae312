"""Source text of the Triton kernel of an attention fusion."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from runtime.gpu.triton.axes import Axes, AxisKind, Blocks
from runtime.gpu.triton.blocks import blocks_for
from runtime.gpu.triton.elements import FUNCTIONS, cast, pointer_type
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.triton.structure import AttentionStructure, structure_of
from runtime.gpu.triton.sums import Sums
from runtime.gpu.triton.tiles import Tiles
from runtime.program.strides import StridedView
from spmd.hlo import HloComputation, HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS

#: Alignment in bytes of the pointers that Triton calls divisible.
_ALIGNED = 16
_MOST_PROGRAMS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """Triton kernel and its launch.

    entry: name of the kernel function. text: Python source of a module that defines it. signature: types of its
    parameters, pointers to the first elements of all operands and then of all results. aligned: which of them are
    multiples of 16 bytes. programs: size of the grid. warps, stages: options of the compiler.
    """

    entry: str
    text: str
    signature: tuple[str, ...]
    aligned: tuple[bool, ...]
    programs: int
    warps: int
    stages: int


def triton_kernel(
    fused: HloComputation,
    operands: Sequence[StridedView],
    results: Sequence[StridedView],
    *,
    tf32: bool = True,
) -> TritonKernel:
    """Return the kernel of the attention fusion that computes ``fused`` on arrays of the given layouts.

    The offsets of the views are relative to aligned addresses. tf32: products of f32 may round their operands to TF32
    if the program allows it. Equal arguments give equal texts. Raises NoTritonKernelError if there is no such kernel.
    """
    structure = structure_of(fused)
    blocks = blocks_for(structure, tf32=tf32)
    lines = Lines()
    tiles = Tiles(operands, blocks, lines, tf32=tf32)
    Sums(structure, blocks, tiles, lines).write()
    for number, (root, view) in enumerate(zip(fused.root.elements, results, strict=True)):
        axes = _axes_of(root, structure)
        tile = tiles.full(root, axes)
        kind = root.array_shape.element_type
        tiles.memory.store(f"r{number}", view, axes, cast(tile.name, tile.kind, kind))
    names = [f"p{n}" for n in range(len(operands))] + [f"r{n}" for n in range(len(results))]
    body = _body(structure, blocks, lines)
    views = (*operands, *results)
    signature = tuple(pointer_type(view.element_type) for view in views)
    digest = hashlib.sha256("\n".join((*signature, *body)).encode()).hexdigest()[:6]
    entry = f"spmd_attention_{structure.mode}_{digest}"
    return TritonKernel(
        entry,
        _module(entry, names, body),
        signature,
        tuple(view.offset % _ALIGNED == 0 for view in views),
        _num_programs(structure, blocks),
        blocks.warps,
        blocks.stages,
    )


def _module(entry: str, names: list[str], body: list[str]) -> str:
    lines = [
        "import triton",
        "import triton.language as tl",
        "\n",
        FUNCTIONS,
        "\n@triton.jit",
        f"def {entry}({', '.join(names)}):",
        *(f"    {line}" for line in body),
        "",
    ]
    return "\n".join(lines)


def _axes_of(root: HloInstruction, structure: AttentionStructure) -> Axes:
    """Return the axes of ``root``, which are those of the sinks that it is computed from element by element."""
    axes = {sink.instruction: sink.axes for sink in structure.sinks}
    work = [root]
    while work:
        x = work.pop()
        if x in axes:
            return axes[x]
        if x.opcode in ELEMENTWISE_OPS:
            work += x.operands
    raise NoTritonKernelError(f"{root.name}: a result that is computed from no sink")


def _num_programs(structure: AttentionStructure, blocks: Blocks) -> int:
    batches = math.prod(axis.size for axis in structure.axes_of_kind(AxisKind.BATCH))
    count = batches * -(-structure.grid.size // blocks.grid)
    if count > _MOST_PROGRAMS:
        raise NoTritonKernelError(f"a grid of {count} programs")
    return count


def _body(structure: AttentionStructure, blocks: Blocks, lines: Lines) -> list[str]:
    """Return the lines of the kernel function: the indices of the program, and the parts of ``lines``."""
    in_grid = -(-structure.grid.size // blocks.grid)
    return [
        "program = tl.program_id(0)",
        f"first = program % {in_grid} * {blocks.grid}",
        *_decoded(f"program // {in_grid}", structure.axes_of_kind(AxisKind.BATCH)),
        *lines.of(Level.PROLOGUE),
        *_loop_head(structure, blocks),
        *(f"    {line}" for line in lines.of(Level.LOOP)),
        *lines.of(Level.EPILOGUE),
    ]


def _loop_head(structure: AttentionStructure, blocks: Blocks) -> list[str]:
    """Return the first lines of the loop over the blocks of the loop's axis, for each index of the STEP axes."""
    size = structure.loop.size
    steps = structure.axes_of_kind(AxisKind.STEP)
    if not steps:
        return [f"for start in range(0, {size}, {blocks.loop}):"]
    count = -(-size // blocks.loop)
    inner = [f"start = step % {count} * {blocks.loop}", *_decoded(f"step // {count}", steps)]
    total = count * math.prod(axis.size for axis in steps)
    return [f"for step in range(0, {total}):", *(f"    {line}" for line in inner)]


def _decoded(number: str, axes: Axes) -> list[str]:
    """Return the lines that assign the indices along ``axes``, whose row-major number is ``number``."""
    lines, below = [], 1
    for axis in reversed(axes):
        lines.append(f"b{axis.number} = {number} // {below} % {axis.size}")
        below *= axis.size
    return lines
