"""Records of convolutions: kernels, and plans of how the tile unit or vector registers multiply.

Arrays are x[g, n, spatial.., c], w[g, window.., c, f] and the result[g, n, out.., f]. g counts groups, n images,
c input features (channels) and f output features.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass
from spmd.ops.window import Window, WindowDimension
from spmd.shape import PrimitiveType

# ---- groups that are neighbours in memory


@dataclass(frozen=True)
class GroupConvolutionKernel(Kernel):
    """Convolution whose groups are contiguous in x, w and the result, such as a depthwise one.

    result[g, n, o.., f] = sum over k.., c of x[g, n, o * stride + k * dilation - padding.., c] * w[g, k.., c, f]

    It has at most two spatial dimensions. Products are summed in ``element_type``. An array of another type is
    converted entirely, in scratch. tf32: as in DotKernel.
    """

    element_type: PrimitiveType
    window: Window
    tf32: bool = False


# ---- matrix products of panels, and what may replace them


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Arrangement of positions and features as rows and columns of the tile unit's products.

    by_line: rows are the positions of one line of ``interleaved_images`` images (those of a position are neighbours),
    and lines of padding are not multiplied. Otherwise rows are the positions of all lines and images of a
    panel, one after the other. merged: columns are the features of all parts, at most 16, if holes in the input make
    several parts.
    """

    interleaved_images: int = 1
    by_line: bool = False
    merged: bool = False


@dataclass(frozen=True)
class ImageTiles:
    """Sizes of the parts that the tile unit splits and packs at a time.

    images: in one panel, a multiple of the interleaved ones. If that is one group, ``lines`` of output positions (of
    the part that has most) are done at a time. block_features: a multiple of 32. channels: a part of the input's; the
    products of the next part are added. elements: of scratch, of 4 bytes each.
    """

    arrangement: Arrangement
    images: int
    lines: int
    block_features: int
    channels: int
    elements: int


@dataclass(frozen=True)
class GradientTiles:
    """Sizes of the parts that the tile unit splits and packs at a time for the gradient of a kernel.

    interleaved_pairs: pairs of images that are interleaved. images: of one panel, a multiple of that many pairs. If
    there are no more than these, ``lines`` of w are done at a time. channels, features: of both operands, multiples of
    32. elements: of scratch, of 4 bytes each.
    """

    interleaved_pairs: int
    images: int
    lines: int
    channels: int
    features: int
    elements: int


@dataclass(frozen=True, slots=True)
class VectorMicroKernel:
    """Micro-kernel in vector registers. lanes: of a vector. heights: rows of the taller and of the lower variant.
    ``across``: vectors in a row of the result.
    """

    lanes: int
    heights: tuple[int, int]
    across: int = 2

    @property
    def columns(self) -> int:
        return self.across * self.lanes

    def next_heights(self) -> list[int]:
        """Return the number of rows to multiply next, by the rows left: the fewest in all, then the fewest products."""
        best: list[tuple[int, int, int]] = [(0, 0, 0)]
        for left in range(1, 5 * self.heights[0]):
            choices = []
            for height in self.heights:
                rows, products, _ = best[max(left - height, 0)]
                choices.append((rows + height, products + 1, height))
            best.append(min(choices))
        return [height for *_, height in best]


class LeftLayout(Enum):
    """Layout of the left side: row by row, or by depth, where a vector's lanes hold rows."""

    ROWS = "rows"
    DEPTH = "depth"


@dataclass(frozen=True)
class VectorPlan:
    """Sizes of the parts that are packed at a time for vector registers.

    left: layout of the left side. depth, features: of a block. buffered: positions whose sums are gathered first, 0 for
    none. elements: of scratch, which need not begin at a cache line.
    """

    micro_kernel: VectorMicroKernel
    left: LeftLayout
    depth: int
    features: int
    buffered: int
    elements: int


@dataclass(frozen=True)
class PanelConvolutionKernel(Kernel):
    """Convolution as matrix products of panels of the patch matrix.

    result[g, n, o.., f] = sum over k.., c of x[g, n, o * stride + k * dilation - padding.., c] * w[g, k.., c, f]

    ``rows`` names the result's dimensions that are one matrix dimension, slowest first, and ``depth`` those of w. The
    result's other dimensions count products. A panel is [row, depth] if ``depth_inside``, else [depth, row]. Along the
    last of the dimensions inside it is copied from x in runs without gaps. scratch[0] holds a panel:
    ``runs_per_block`` runs of ``outer_per_block`` rows (or depths). Products are summed in ``element_type``. Arrays of
    another type are converted as a whole: scratch has one more for each of x, w and the result.

    tiles: plan for the tile unit, if the processor has one. vectors: plan for vector registers. tf32: as
    in DotKernel.
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
        """The number of elements of scratch[0]."""
        panel = self.run_length * self.runs_per_block * self.outer_per_block
        ways = (self.tiles, self.vectors)
        return max(panel, *(way.elements for way in ways if way is not None), 0)


#: Kernel of a convolution that is not divided into phases.
UndividedConvolution: TypeAlias = PanelConvolutionKernel | GroupConvolutionKernel


# ---- inputs with holes


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """One spatial dimension of a phase: its results first, first + step, .. are the convolution ``window`` with
    elements tap, tap + tap_step, .. of the kernel.

    Example: with window size 3, base dilation 2 and padding 1, results 0, 2, .. meet element 1, and results 1, 3, ..
    meet elements 0 and 2.
    """

    first: int
    step: int
    outputs: int
    tap: int
    tap_step: int
    window: WindowDimension

    @property
    def taps(self) -> int:
        return self.window.size

    @property
    def results(self) -> slice:
        return slice(self.first, None, self.step)

    @property
    def elements(self) -> slice:
        return slice(self.tap, self.tap + (self.taps - 1) * self.tap_step + 1, self.tap_step)


@dataclass(frozen=True)
class Phase:
    """Part of a convolution: the elements of w and of the result that ``axes`` name along the spatial dimensions.

    w_order, out_order: order of the dimensions, the slowest first, in which these parts are packed in scratch;
    None if they are used without a copy. kernel: None if there are few features, so that vectors hold channels.
    """

    axes: tuple[PhaseAxis, ...]
    kernel: UndividedConvolution | None
    w_order: tuple[int, ...] | None = None
    out_order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PhaseConvolutionKernel(Kernel):
    """Convolution of an input with holes (base dilation). ``undivided``: the kernel that multiplies the holes, too.

    If the processor has a tile unit and ``undivided`` a plan for it, the tile unit runs that. Otherwise each phase
    computes its part, which multiplies no holes, and the results ``zeros``, which are in no phase, are zeros. scratch:
    ``panel_elements``, if any, then the arrays of another type than ``element_type``, converted. tf32: as in DotKernel.
    """

    element_type: PrimitiveType
    undivided: UndividedConvolution
    phases: tuple[Phase, ...]
    zeros: tuple[tuple[slice, ...], ...]
    panel_elements: int = 0
    tf32: bool = False

    @property
    def is_thin(self) -> bool:
        """True if there are few features, so that vectors hold channels of the input."""
        return any(phase.kernel is None for phase in self.phases)


def padded(elements: int) -> int:
    """Return the elements of scratch for an array of this size; what follows begins a cache line."""
    return -(-elements // 64) * 64
