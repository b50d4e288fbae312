"""ShardedArrays: global arrays as tiles on this process's devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.arrays.resident import DeviceArray
from runtime.arrays.tiles import gather
from spmd.errors import RunError
from spmd.literal import NDArray
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding, ShardingKind


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Global shape and sharding of an argument or a result. ``sharding`` None: every device has the entire array."""

    shape: ArrayShape
    sharding: HloSharding | None


@dataclass(frozen=True)
class ShardedArrays:
    """Arrays as tiles on this process's devices: ``tiles[d][i]`` belongs to a global array ``specs[i]``.

    ``Executable.put`` makes them; a run takes them and returns them. Numbers, slices and sums choose and join arrays:
    ``state = executable.run(state)[:2] + batch``. ``numpy.asarray(state[0])`` is the first one's global array, where
    this process has all of its tiles. An array that an output of the run aliases is donated: used up by the run, an
    error when used again. All others are valid as long as they are referenced.
    """

    tiles: tuple[tuple[DeviceArray, ...], ...]
    specs: tuple[ArraySpec, ...]

    def __len__(self) -> int:
        return len(self.specs)

    def __getitem__(self, which: int | slice) -> ShardedArrays:
        """Return the arrays of a slice, or the one of that number."""
        if not isinstance(which, slice):
            number = range(len(self))[which]  # IndexError, which also ends an iteration
            which = slice(number, number + 1)
        return ShardedArrays(tuple(own[which] for own in self.tiles), self.specs[which])

    def __add__(self, other: ShardedArrays) -> ShardedArrays:
        tiles = zip(self.tiles, other.tiles, strict=True)
        return ShardedArrays(tuple(a + b for a, b in tiles), self.specs + other.specs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return a copy of the one global array. TypeError for several, RunError where tiles lie on other ranks."""
        if len(self) != 1:
            raise TypeError(
                f"{len(self)} arrays are no single NumPy array: choose one, as in state[0], or use executable.get"
            )
        if copy is False:
            raise ValueError("a divided array cannot be handed out without a copy")
        (spec,) = self.specs
        if any(spec.shape.dynamic):
            raise RunError(f"the size of {spec.shape} is another output: use executable.get(state)")
        tiles = [own[0].view() for own in self.tiles]
        sharding = spec.sharding
        wanted = 1 if sharding is None else sharding.num_devices or 1
        is_elsewhere = sharding is not None and sharding.kind is ShardingKind.MAXIMAL
        if len(tiles) < wanted or (is_elsewhere and len(tiles) == 1):
            raise RunError(
                f"this process has {len(tiles)} of the tiles of {spec.shape.without_layout()} {sharding}: "
                'use executable.get(state, gather="all") on every rank'
            )
        tiled = sharding is not None and sharding.is_tiled
        return gather(tiles[:wanted] if tiled else tiles, sharding, spec.shape).astype(
            dtype, copy=False
        )
