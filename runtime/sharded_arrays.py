"""ShardedArrays: global arrays as tiles on this process's devices."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.resident import DeviceArray
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class Boundary:
    """One array as the caller sees it: its global shape, and how devices share it (None: every one holds it all)."""

    shape: ArrayShape
    sharding: HloSharding | None


@dataclass(frozen=True)
class ShardedArrays:
    """Arrays as tiles on this process's devices: ``tiles[d][i]`` belongs to a global array ``boundaries[i]``.

    ``Executable.put`` makes them; a run takes them and returns them. Slices and sums choose and join arrays:
    ``state = executable.run(state)[:2] + batch``. An array that an output of the run aliases is donated: used up by
    the run, an error when used again. All others are valid as long as they are held.
    """

    tiles: tuple[tuple[DeviceArray, ...], ...]
    boundaries: tuple[Boundary, ...]

    def __len__(self) -> int:
        return len(self.boundaries)

    def __getitem__(self, which: slice) -> ShardedArrays:
        return ShardedArrays(tuple(own[which] for own in self.tiles), self.boundaries[which])

    def __add__(self, other: ShardedArrays) -> ShardedArrays:
        tiles = zip(self.tiles, other.tiles, strict=True)
        return ShardedArrays(tuple(a + b for a, b in tiles), self.boundaries + other.boundaries)

    def pick(self, order: list[int]) -> ShardedArrays:
        """Arrays number ``order[0]``, ``order[1]``, ..."""
        return ShardedArrays(
            tuple(tuple(own[i] for i in order) for own in self.tiles),
            tuple(self.boundaries[i] for i in order),
        )
