"""TiledProducts: seconds of matrix products that a GPU's library cuts into tiles.

Each processor computes one tile of the result at a time. A product of T tiles on P processors takes ceil(T / P) waves,
of which the last one may leave processors idle. If there are few tiles, the library splits the contracted dimension:
more processors compute partial results, which are then added. Of all tile shapes and splits the fastest is used, as a
library's heuristics aim for (NVIDIA, Matrix multiplication background user's guide, sections on tile and wave
quantization).
"""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass

#: Bytes of one element of a partial result, which is f32.
_PARTIAL = 4
#: Fewest elements of the contracted dimension in one split.
_LEAST_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """Shape of a tile of the result.

    attained: multiplication rate of tiles of this shape, as a fraction of that of the largest shape.
    """

    rows: int
    columns: int
    attained: float


@dataclass(frozen=True, slots=True)
class TiledProducts:
    """Tile shapes of a GPU's product library, and what a product takes besides its multiplications.

    tiles: shapes, of which each product uses the best.
    splits: numbers of parts into which the contracted dimension is cut, of which each product uses the best.
    start_depth: to begin and end a tile, as a number of elements of the contracted dimension.
    result_bandwidth: bytes per second at which results are written.
    source: where the numbers come from.
    """

    tiles: tuple[Tile, ...]
    splits: tuple[int, ...]
    start_depth: float
    result_bandwidth: float
    source: str = ""

    def seconds(
        self,
        rate: float,
        units: int,
        sizes: tuple[int, int, int, int],
        element_bytes: int,
        partial_bandwidth: float,
    ) -> float:
        """Return the seconds of ``sizes`` = (batch, m, k, n): a batch of products of matrices [m, k] and [k, n].

        ``rate`` is in flops per second of ``units`` processors that all compute tiles of the largest shape.
        ``element_bytes`` is the size of an element of the result, and ``partial_bandwidth`` the bytes per second at
        which partial results are written and read.
        """
        batch, m, k, n = sizes
        results = float(batch) * m * n
        quickest = float("inf")
        for tile in self.tiles:
            tiles = batch * -(-m // tile.rows) * -(-n // tile.columns)
            per_depth = 2.0 * tile.rows * tile.columns * units / (rate * tile.attained)
            for split in self.splits:
                if split > 1 and k < split * _LEAST_DEPTH:
                    continue
                waves = -(-tiles * split // units)
                seconds = waves * per_depth * (k / split + self.start_depth)
                if split > 1:
                    seconds += 2.0 * _PARTIAL * split * results / partial_bandwidth
                quickest = min(quickest, seconds)
        return quickest + results * element_bytes / self.result_bandwidth
