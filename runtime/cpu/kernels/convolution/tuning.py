"""Thresholds between the algorithms of a convolution, block sizes, and costs on the tile unit.

Each figure names the processor, one core of it, on which `benchmarks/native/convolutions.py` or layers like its own
were timed: a Xeon (Sapphire Rapids, with a tile unit) or an EPYC (Zen 4, Zen 5). Times are relative to those with the
value chosen here. The thresholds of phases, and of convolutions with few features, are in
runtime/emit/convolution/phases.py.
"""

from __future__ import annotations

from runtime.cpu.kernels.gemm.tile_types import LINES, PANEL

# ---- panels, which BLAS multiplies (panels.py). Not measured.

#: Largest size of a panel in bytes, such that it fits in the L2 cache.
MOST_PANEL_BYTES = 1 << 19
#: A panel has at most 1 / PANEL_PART of the bytes of operands and result, or LEAST_PANEL_BYTES.
PANEL_PART, LEAST_PANEL_BYTES = 8, 1 << 11
#: Bounds of the inner size of a panel, between which it is 1 / INSIDE_PART of the panel; larger products are cut.
LEAST_INSIDE, MOST_INSIDE, INSIDE_PART = 64, 1024, 8

# ---- groups side by side (grouped.py)

#: Largest number of vectors of groups that are summed concurrently (Zen 5, 64 to 512 groups: 1 vector takes 1.2 to 1.8
#: times as long, 2 vectors 1.2 to 1.4, and 8 vectors 1.0 to 2.3).
GROUP_VECTORS = 4

# ---- vector registers (vectors.py)

#: Number of rows, of two vectors of sums each, that are multiplied at a time, and of those for the remainder, with
#: AVX-512 and with AVX2 (Zen 4: layers with 3x3 windows reach 91 to 97 GFLOP/s, by panels 68 to 83).
AVX512_HEIGHTS, AVX2_HEIGHTS = (14, 8), (6, 4)
#: Number of such rows of one vector of sums each, for results with no more features than a vector has lanes.
AVX512_NARROW_HEIGHTS, AVX2_NARROW_HEIGHTS = (16, 8), (8, 4)
#: Largest depth of a product (Zen 5: half and twice the depth take as long), and the row stride of its left operand, an
#: odd number of cache lines, so that rows map to different sets of the cache.
DEPTH, PITCH = 576, 592
#: Largest number of features whose part of w is packed at a time, such that it fits in the L2 cache.
MOST_FEATURES = 512
#: Number of sums in the buffer that is used if features are not contiguous in the result.
BUFFERED = 1 << 16
#: Fewest contiguous rows of a gradient, and least depth of sums for fewer features than a vector's lanes; BLAS computes
#: the others (Zen 5, 16 images of 16x16: 2 and 3 channels in 0.7 to 1.0 of the time, 1x1 windows in 0.8 to 1.0; it
#: takes 1.3 to 2.1 times as long for larger windows, and 1.0 to 1.6 times for gradients of 8 and 16 channels).
LEAST_RUN, LEAST_PARTIAL_DEPTH = 8, 24
#: Largest ratio of packed elements to elements of the arrays; BLAS computes smaller convolutions, for the sake of
#: memory (Zen 5: in 1.2 to 2.0 of the time).
MOST_SHARE = 1.0

# ---- few features (thin.py)

#: Largest number of positions computed concurrently, each of which needs an address register (Zen 5, 1 to 3 features: 7
#: and 9 positions take 1.07 to 1.12 times as long).
MOST_POSITIONS = 8
#: Registers, by the bytes of a vector, that hold sums and vectors of w; numbers of x take the others. With more LLVM
#: spills sums (Zen 5: 4 positions of 6 features 237 GFLOP/s, 3 of 8 159, 2 of 8 222; AVX2 3 of 4 55, 2 of 4 115).
THIN_REGISTERS = {64: 30, 32: 15}

# ---- the tile unit (tile_image.py, tile_gradient.py), on Sapphire Rapids

#: Bounds in bytes of the packed operands; small convolutions have a larger part, since the packed kernel must fit as
#: well (15x15 37->51 in half of the time that panels take).
LEAST_TILE_BYTES, MOST_TILE_BYTES = 1 << 14, 1 << 20
SMALL_TILE_PART, SMALL_TILE_BYTES = 4, 1 << 17
#: Most products of the unit, with padding, per useful product, up to which it is faster than panels: 16 with few
#: features, for which BLAS is slow; 4 with few channels and large windows, for which it is not.
MOST_MULTIPLIED, MOST_MULTIPLIED_GRADIENT = 16, 4
#: Costs, in multiplications of the unit, of splitting an element, of also transposing it, and of accumulating to an
#: element of the result.
SPLIT, TURN_AND_SPLIT, ADD = 45.0, 70.0, 25.0
#: Cost of 16 remaining rows or columns of a block, in rows of full blocks. It exceeds 16 because each loaded tile is
#: used for fewer products.
LEFT_OVER = 20
#: Largest number of images in a group, and of pairs of images for a gradient, such that their lines fit in cache.
MOST_GROUP_IMAGES, MOST_GROUP_PAIRS = 16, 8
#: Prefetch distance in bytes: half a page, since the hardware does not prefetch across its end.
PREFETCH_BYTES = 2048


def filled(count: int) -> int:
    """Return the number of rows or columns, in full blocks, that take as long as ``count`` rows or columns."""
    full, left = divmod(count, PANEL)
    return full * PANEL + (0 if not left else LEFT_OVER if left <= LINES else PANEL)
