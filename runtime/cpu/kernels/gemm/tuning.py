"""Thresholds between the algorithms of a matrix product, and block sizes.

Each figure names the processor, one core of it, on which `benchmarks/native/matrix_products.py` or products like its
own were timed: a Xeon (Sapphire Rapids, with a tile unit) or an EPYC (Zen 4, Zen 5). Figures of entire algorithms are
in docs/internals/products.md. A product of sizes m, k and n has m k n multiplications.
"""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass

# ---- products in registers, by native code that packs nothing (small_dot_ir.py)

#: Most multiplications of a product that calls no BLAS, and of one whose rows are no multiple of FULL_VECTORS: OpenBLAS
#: calls malloc for the remainder of a row up to there (Sapphire Rapids: 0.85 of OpenBLAS's time over 40 products;
#: Zen 5: 0.9 to 1.1 for cubes of 64 to 100, above 0.8 to 1.9, most where rows lie a power of two apart).
MOST_SMALL, MOST_RAGGED = 1 << 18, 10**6
FULL_VECTORS = 16
#: Most rows of lhs for which packing rhs does not pay, the fewest columns for that, and the largest depth: each row of
#: rhs is on another page, which must still be in the TLB for the next columns (Zen 4: 8x1024x1024 in 0.37 of the time,
#: 32x1024x1024 in 0.61 of OpenBLAS's).
FLAT_ROWS, FLAT_COLUMNS, FLAT_DEPTH = 32, 64, 2048
#: Most rows of a block of sums (Zen 5, six products: 4 rows take 1.00 to 1.11, 6 1.00 to 1.05, 12 0.96 to 1.01), and
#: cycles of a loop's overhead, by which the block is chosen (without them 1.04 in the geometric mean for AVX2).
MOST_BLOCK_ROWS, LOOP_CYCLES = 8, 1.0
#: Registers, of 32 with AVX-512 and of 16 with AVX2, that hold the sums of a block and vectors of rhs; numbers of lhs
#: take the others. With more LLVM spills sums (Zen 5: 3 x 8 vectors 112 GFLOP/s, 3 x 7 217; AVX2 3 x 4 56, 3 x 3 97).
BLOCK_REGISTERS = 28, 15
#: Fewest rows of lhs for which a rhs that lies by column is first made row-major on the stack, and the most elements
#: that it may have there (Zen 5: without that 1.1 to 2.0 times as long, 0.5 to 2.7 below 32 rows; 0.93 beyond 4096
#: elements).
TRANSPOSE_LEAST_ROWS, TRANSPOSE_MOST_ELEMENTS = 32, 4096

# ---- a few rows and a large matrix (thin_dot.py)

#: Least bytes of the large matrix. At 256 KB there is no difference, at 4 MB this is two to four times as fast.
THIN_LEAST_BYTES = 1 << 19
#: Most rows of one call, and of a product if rhs is read by column; by row as many as of one call (Zen 5, a rhs of
#: 2048x2048 by column: 0.2 to 0.4 of OpenBLAS's time up to 8 rows, 0.6 with 12, 0.9 with 16, 1.2 with 24).
THIN_CALL_ROWS, THIN_MOST_ROWS = 8, 16
#: Most rows for which rows of rhs are accumulated although sums of columns would fit in registers: this reads a matrix
#: in longer runs (Zen 4: 64 MB in 0.5 to 0.8 of the time for 2 to 4 rows), which matters less for more rows.
MOST_SUMMED = 4
#: Number of rows of rhs that are added at a time (Zen 5: 2 take 1.1 to 1.5 times as long, and 8 take 1.1 to 1.4 times).
SUMMED_DEPTH = 4

# ---- products of integers that no float holds (integer_dot.py)

#: Columns of the result that are summed at a time: with as many of each row of rhs, they stay in cache (Zen 5, a depth
#: of 256: 64 take 1.5 to 1.7 times as long, 1024 0.9 to 1.0, all of 4096 1.1).
INTEGER_COLUMNS = 256

# ---- the tile unit, and vectors of narrow types in its place


@dataclass(frozen=True, slots=True)
class TileThresholds:
    """Sizes from which a product of f32 is faster on the tile unit than with one thread of BLAS."""

    lines: int
    depth: int
    products: int

    def at(self, m: int, n: int, k: int) -> bool:
        """Return whether a product of m rows, n columns and depth k reaches all thresholds."""
        return min(m, n) >= self.lines and k >= self.depth and m * n * k >= self.products


#: Below these thresholds other algorithms are as fast or faster (Sapphire Rapids).
TILE_THRESHOLDS = TileThresholds(lines=32, depth=16, products=1 << 20)
#: Largest number of threads with which BLAS is slower than one tile unit (Sapphire Rapids).
TILE_MOST_BLAS_THREADS = 2
#: Fewest multiplications of a product of narrow types, and of one that splits f32 into parts; of the latter also the
#: fewest lines of the other operand (Sapphire Rapids).
NARROW_LEAST_PRODUCTS, SPLIT_LEAST_PRODUCTS, SPLIT_LEAST_LINES = 1 << 14, 1 << 17, 16
#: Least depth, and fewest rows and columns, at which vectors of bf16 are faster than BLAS on converted matrices: they
#: multiply 32 deep, and packing a matrix for one row takes longer than BLAS's entire product (Zen 4; on Zen 5 they
#: take 0.8 to 1.0 of BLAS's time 16 deep, 1.4 to 2.3 8 deep, and 0.9 to 1.0 of one row).
BF16_LEAST_DEPTH, BF16_LEAST_LINES = 16, 2
#: Bytes of packed lines that are resident, and of columns of rhs that pass: both fit in an L2 cache of 2 MiB with the
#: other data (Sapphire Rapids).
RESIDENT_BYTES, PASSING_BYTES = 768 << 10, 384 << 10

# ---- pieces of a product that threads, or messages in turn, share (runtime/cpu/sharing/products.py)

#: Fewest lines of a piece: with fewer, packing the other operand would not pay. Not measured.
PIECE_LEAST_LINES = 64
#: Fewest elements and columns of the result of a piece if one thread computes all pieces: BLAS packs the operands of
#: each piece again. 1024x1024x1024 in 8 such pieces takes 1.03 to 1.09 times as long as in one (in 16 of 256x256 1.2
#: times, of 64 columns 1.7 times), 256x2048x8192 in 16 1.02 times (Sapphire Rapids). Such pieces take a millisecond or
#: two, and messages over 1 to 10 Gbit/s land no later than with pieces of half the size.
PIECE_LEAST_AREA, PIECE_LEAST_COLUMNS = 512 * 256, 256
