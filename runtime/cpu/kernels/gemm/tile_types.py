"""Types and layouts of the tile unit: operands in tiles, and the product of two panels of tiles.

A tile is 16 rows of 64 bytes. In a left operand a row of the tile is a row of the matrix, and its 16 words of 4 bytes
are along the depth. In a right operand a column of words is a column of the matrix. A word holds ``group`` elements of
the depth: two bf16 or four bytes. Word w holds the depths w, 16 + w, .. of a step, so that packing needs no shuffles;
sums do not depend on the order.

An f32 is the sum of three bf16, each the nearest to the remainder (8 of its 24 bits). The product of two f32 is the sum
of six products of parts. The omitted products are at most 2^-24 of the product, and mostly far less. Sums are in f32.

A panel is 32 rows (or columns) of an operand: [step of the depth][part][half] tiles.
"""

from __future__ import annotations

import itertools

from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Number of rows of a tile, and of words of a vector.
LINES = 16
#: Size of a tile in bytes.
TILE_BYTES = 1024
#: Number of rows or columns of a panel, and of a block of the result that is summed in registers.
PANEL = 32
#: Bytes of a row of a tile, and the LLVM types of a row.
ROW_BYTES = 64
ROW, INTS, FLOATS, HALVES = "[64 x i8]", "<16 x i32>", "<16 x float>", "<32 x i16>"
#: Bytes of a block of sums, and of one of its rows, and the LLVM type of such a row.
BLOCK_BYTES, BLOCK_ROW = 4096, 128
SUMS_ROW = f"[{BLOCK_ROW} x i8]"

P = PrimitiveType


@dataclass(frozen=True, slots=True)
class TileTypes:
    """Element types of a product of ``lhs`` and ``rhs`` into ``result``. The sums are in f32 or s32."""

    lhs: PrimitiveType
    rhs: PrimitiveType
    result: PrimitiveType

    @property
    def group(self) -> int:
        """Return the number of elements in a word of 4 bytes."""
        return 2 if self.is_float else 4

    @property
    def is_float(self) -> bool:
        """Return whether the operands are floats, whose words are pairs of bf16."""
        return self.lhs.is_floating

    @property
    def parts(self) -> int:
        """Return the number of bf16 parts of an element of lhs: 3 for f32, else 1."""
        return parts_of(self.lhs)

    @property
    def rhs_parts(self) -> int:
        """Return the number of bf16 parts of an element of rhs: 3 for f32, else 1."""
        return parts_of(self.rhs)

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return pairs (part of lhs, part of rhs) in the order in which their products are summed.

        With three parts each, these are the six largest of the nine products, in an order in which consecutive ones
        share a part, which is loaded once. Otherwise products of smaller parts come first.
        """
        if self.parts == self.rhs_parts == 3:
            return ((0, 2), (0, 1), (1, 1), (1, 0), (0, 0), (2, 0))
        pairs = itertools.product(range(self.parts), range(self.rhs_parts))
        return tuple(sorted(pairs, key=sum, reverse=True))

    @property
    def instruction(self) -> str:
        """Return LLVM's name of the intrinsic that multiplies tiles, without its prefix."""
        if self.is_float:
            return "tdpbf16ps"
        letters = "".join("s" if kind.is_signed_integer else "u" for kind in (self.lhs, self.rhs))
        return f"tdpb{letters}d"

    @property
    def step_depth(self) -> int:
        """Return the depth of a tile in elements."""
        return LINES * self.group

    @property
    def step_bytes(self) -> int:
        """Return the bytes of one step of a panel of lhs."""
        return 2 * self.parts * TILE_BYTES

    @property
    def rhs_step_bytes(self) -> int:
        """Return the bytes of one step of a panel of rhs."""
        return 2 * self.rhs_parts * TILE_BYTES


def most_depth(types: TileTypes) -> int:
    """Return the largest depth of a block, by which operands are packed.

    A result that is narrower than the sums cannot be accumulated over several blocks, so a product of f32 with bf16
    into bf16 has larger blocks.
    """
    if max(types.parts, types.rhs_parts) > 1:
        return 2048 if types.result is PrimitiveType.BF16 else 512
    return 8192 // (4 // types.group)


def parts_of(kind: PrimitiveType) -> int:
    """Return the number of bf16 parts into which an element of ``kind`` is split."""
    return 3 if kind is P.F32 else 1


#: Types of the products for which there is code.
TILE_TYPES = (
    TileTypes(P.F32, P.F32, P.F32),
    *(
        TileTypes(lhs, rhs, result)
        for lhs, rhs in ((P.BF16, P.BF16), (P.F32, P.BF16), (P.BF16, P.F32))
        for result in (P.F32, P.BF16)
    ),
    *(
        TileTypes(lhs, rhs, result)
        for lhs in (P.S8, P.U8)
        for rhs in (P.S8, P.U8)
        for result in (P.S32, P.U32)
    ),
)

# Palette 1; of each of eight tiles the bytes of a row, then the number of rows.
_CONFIG = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[LINES] * 8, *[0] * 8])

#: Configuration of the tiles, as the unit loads it.
CONFIG_IR = f"""
@tile_config = internal constant [64 x i8] c"{"".join(f"{chr(92)}{b:02X}" for b in _CONFIG)}", align 64
"""
