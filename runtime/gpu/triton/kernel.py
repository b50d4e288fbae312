"""Source text of the Triton kernel of an attention fusion."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from runtime.gpu.triton.axes import Axes, AxisKind, Blocks
from runtime.gpu.triton.blocks import blocks_for
from runtime.gpu.triton.elements import FUNCTIONS, cast, pointer_type
from runtime.gpu.triton.lines import Level, Lines
from runtime.gpu.triton.loop import LoopWriter
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.gpu.triton.structure import AttentionStructure, structures_of, untransposed
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


def triton_kernels(
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
    names = [f"p{n}" for n in range(len(operands))] + [f"r{n}" for n in range(len(results))]
    loop = LoopWriter(structure, blocks, lines.of(Level.LOOP), new_tiles)
    body = _body(structure, blocks, lines, loop)
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
        "from triton.language.extra import libdevice",
        "\n",
        FUNCTIONS,
        "\n@triton.jit",
        f"def {entry}({', '.join(names)}):",
        *(f"    {line}" for line in body),
        "",
    ]
    return "\n".join(lines)


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
    count = batches * -(-structure.grid.size // blocks.grid)
    if count > _MOST_PROGRAMS:
        raise NoTritonKernelError(f"a grid of {count} programs")
    return count


def _body(
    structure: AttentionStructure, blocks: Blocks, lines: Lines, loop: LoopWriter
) -> list[str]:
    """Return the lines of the kernel function: the indices of the program, its loop, and the lines around that."""
    count = -(-structure.grid.size // blocks.grid)
    number = f"program % {count}"
    if loop.is_longer_for_later_rows:  # the longest programs start first
        number = f"({count - 1} - {number})"
    return [
        "program = tl.program_id(0)",
        f"first = {number} * {blocks.grid}",
        *_decoded(f"program // {count}", structure.axes_of_kind(AxisKind.BATCH)),
        *lines.of(Level.PROLOGUE),
        *loop.lines(),
        *lines.of(Level.EPILOGUE),
    ]


def _decoded(number: str, axes: Axes) -> list[str]:
    """Return the lines that assign the indices along ``axes``, whose row-major number is ``number``."""
    lines, below = [], 1
    for axis in reversed(axes):
        block = number if below == 1 else f"{number} // {below}"
        lines.append(f"b{axis.number} = {block} % {axis.size}")
        below *= axis.size
    return lines
