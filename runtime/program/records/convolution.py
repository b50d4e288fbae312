"""Records of convolution kernels, and plans for the tile unit (AMX) and for vector registers.

The arrays are x[g, n, spatial.., c], w[g, window.., c, f] and result[g, n, out.., f]. g counts groups, n images, c
input features (channels) and f output features.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window, WindowDimension
from spmd.shape import PrimitiveType

# ---- groups that are contiguous in memory


@dataclass(frozen=True)
class GroupConvolutionKernel(Kernel):
    """Convolution whose groups are contiguous in x, w and the result, such as a depthwise one.

    result[g, n, o.., f] = sum over k.., c of x[g, n, o * stride + k * dilation - padding.., c] * w[g, k.., c, f]

    It has at most two spatial dimensions. element_type: type of the accumulators; an array of another type is converted
    as a whole through scratch. tf32: f32 operands may be rounded to TF32, as in DotKernel.
    """

    element_type: PrimitiveType
    window: Window
    tf32: bool = False


# ---- matrix products of panels, and plans that replace BLAS


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Assignment of output positions and features to rows and columns of the tile unit's matrix products.

    by_line: the rows of a product are the positions of one line of ``interleaved_images`` images; the images of a
    position are adjacent, and lines of padding are not multiplied. Otherwise the rows are the positions of all lines
    and images of a panel, one after another. merged: if base dilation divides the convolution into several parts, the
    columns are the features of all parts, at most 16 in all.
    """

    interleaved_images: int = 1
    by_line: bool = False
    merged: bool = False


@dataclass(frozen=True)
class ImageTiles:
    """Block sizes of a convolution on the tile unit.

    images: images of a panel, a multiple of the interleaved images. lines: if a panel has one group of interleaved
    images, the lines of output positions that are computed at a time. block_features: output features of a block, a
    multiple of 32. channels: input channels of a block; products of the blocks are summed. elements: size of scratch in
    units of 4 bytes.
    """

    arrangement: Arrangement
    images: int
    lines: int
    block_features: int
    channels: int
    elements: int


@dataclass(frozen=True)
class GradientTiles:
    """Block sizes of the gradient of a convolution's kernel on the tile unit.

    interleaved_pairs: number of pairs of images that are interleaved. images: images of a panel, a multiple of the
    images of these pairs. lines: if a panel has no more images than these, the lines of w that are processed at a time.
    channels, features: features of a block of x and of w, multiples of 32. elements: size of scratch in units of 4
    bytes.
    """

    interleaved_pairs: int
    images: int
    lines: int
    channels: int
    features: int
    elements: int


@dataclass(frozen=True, slots=True)
class VectorMicroKernel:
    """Micro-kernel of a matrix product in vector registers.

    It has two variants, whose numbers of result rows are ``heights``, the larger one first. A row of the result has
    ``across`` vectors of ``lanes`` elements.
    """

    lanes: int
    heights: tuple[int, int]
    across: int = 2

    @property
    def columns(self) -> int:
        """Number of elements in a row of the result."""
        return self.across * self.lanes

    def next_heights(self) -> list[int]:
        """Return a table whose entry n is the height of the variant to call next if n rows are left.

        The choices minimize the number of computed rows, then the number of calls. The table ends at five times the
        larger height.
        """
        best: list[tuple[int, int, int]] = [(0, 0, 0)]
        for left in range(1, 5 * self.heights[0]):
            choices = []
            for height in self.heights:
                rows, products, _ = best[max(left - height, 0)]
                choices.append((rows + height, products + 1, height))
            best.append(min(choices))
        return [height for *_, height in best]


class LeftLayout(Enum):
    """Layout of the packed left operand: row by row, or depth by depth with rows in the lanes of a vector."""

    ROWS = "rows"
    DEPTH = "depth"


@dataclass(frozen=True)
class VectorPlan:
    """Block sizes of a convolution in vector registers.

    left: layout of the packed left operand. depth, features: depth (k) and output features of a block. buffered: number
    of positions whose sums are collected in a buffer before they are stored, 0 if they are stored directly. elements:
    size of scratch in elements; scratch need not be aligned to a cache line.
    """

    micro_kernel: VectorMicroKernel
    left: LeftLayout
    depth: int
    features: int
    buffered: int
    elements: int


@dataclass(frozen=True)
class PanelConvolutionKernel(Kernel):
    """Convolution as matrix products of panels of the patch matrix (im2col).

    result[g, n, o.., f] = sum over k.., c of x[g, n, o * stride + k * dilation - padding.., c] * w[g, k.., c, f]

    rows: dimensions of the result that form the rows of one matrix, slowest first. depth: dimensions of w that form its
    depth. The other dimensions of the result count products. A panel is [row, depth] if ``depth_inside``, else [depth,
    row]; along the last of its inner dimensions it is copied from x in contiguous runs of ``run_length``. scratch[0]
    holds a panel of ``runs_per_block`` runs by ``outer_per_block`` rows (or depths). element_type: type of the
    accumulators. Arrays of another type are converted as a whole: scratch has one more array for each of them, in the
    order x, w, result.

    tiles: plan for CPUs with a tile unit. vectors: plan for vector registers. tf32: f32 operands may be rounded to
    TF32, as in DotKernel.
    """

    element_type: PrimitiveType
    window: Window
    rows: tuple[int, ...]
    depth: tuple[int, ...]
    depth_inside: bool
    run_length: int
    runs_per_block: int
    outer_per_block: int
    tiles: ImageTiles | GradientTiles | None = None
    vectors: VectorPlan | None = None
    tf32: bool = False

    @property
    def panel_elements(self) -> int:
        """Size of scratch[0] in elements: the largest of a panel and the scratch of the plans."""
        panel = self.run_length * self.runs_per_block * self.outer_per_block
        ways = (self.tiles, self.vectors)
        return max(panel, *(way.elements for way in ways if way is not None), 0)


#: Kernel of a convolution that is not divided into phases.
UndividedConvolution: TypeAlias = PanelConvolutionKernel | GroupConvolutionKernel


# ---- inputs with holes (base dilation)


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """One spatial dimension of a phase, a part of a convolution with base dilation.

    Results first, first + step, .. are the convolution ``window``, without base dilation, with the elements tap, tap +
    tap_step, .. of the kernel. ``outputs`` is the number of these results.

    Example: with window size 3, base dilation 2 and padding 1, results 0, 2, .. are products of kernel element 1, and
    results 1, 3, .. are sums of products of kernel elements 0 and 2. All other products have a hole as a factor.
    """

    first: int
    step: int
    outputs: int
    tap: int
    tap_step: int
    window: WindowDimension

    @property
    def taps(self) -> int:
        """Number of kernel elements of the phase."""
        return self.window.size

    @property
    def results(self) -> slice:
        """Indices of the results of the phase."""
        return slice(self.first, None, self.step)

    @property
    def elements(self) -> slice:
        """Indices of the kernel elements of the phase."""
        return slice(self.tap, self.tap + (self.taps - 1) * self.tap_step + 1, self.tap_step)


@dataclass(frozen=True)
class Phase:
    """Part of a convolution with base dilation: a convolution of some elements of w to some elements of the result.

    axes: these elements along each spatial dimension. w_order, out_order: dimension order, slowest first, in which
    these elements are packed in scratch; None if they are used in place. kernel: kernel that computes the phase, or
    None if there are few features, so that the lanes of vectors hold channels.
    """

    axes: tuple[PhaseAxis, ...]
    kernel: UndividedConvolution | None
    w_order: tuple[int, ...] | None = None
    out_order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PhaseConvolutionKernel(Kernel):
    """Convolution of an input with holes (base dilation), or one with few features.

    If the CPU has a tile unit and ``undivided`` has a plan for it, the tile unit computes ``undivided``, the kernel of
    the entire convolution. Otherwise each of ``phases`` computes its part, which has no holes, and the results
    ``zeros``, which belong to no phase, are set to zero. scratch: an array of ``panel_elements`` if that is not 0, then
    a converted copy of each array whose type is not ``element_type``. tf32: f32 operands may be rounded to TF32, as in
    DotKernel.
    """

    element_type: PrimitiveType
    undivided: UndividedConvolution
    phases: tuple[Phase, ...]
    zeros: tuple[tuple[slice, ...], ...]
    panel_elements: int = 0
    tf32: bool = False

    @property
    def is_thin(self) -> bool:
        """True if there are few features, so that the lanes of vectors hold channels of the input."""
        return any(phase.kernel is None for phase in self.phases)


def padded(elements: int) -> int:
    """Return ``elements`` rounded up to a multiple of 64, so that the next array in scratch begins at a cache line."""
    return -(-elements // 64) * 64
