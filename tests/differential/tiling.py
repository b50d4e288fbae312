"""Parts of a global array that each device holds, written from the definition without code of the partitioner.

A tile assignment is an array of device ids with one dimension per dimension of the value (and trailing ones for
subgroups). The device at position (i, j, ..) holds tile (i, j, ..). A dimension of n elements in s shards has tiles of
ceil(n / s) elements; tile i holds elements i * tile up to min((i + 1) * tile, n); what its array has beyond is padding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_TILED = re.compile(
    r"\{devices=\[(?P<dims>[\d,]+)\]"
    r"(?:<=\[(?P<reshape>[\d,]+)\](?:T\((?P<perm>[\d,]+)\))?|(?P<ids>[\d,]+))"
    r"(?: (?P<replicate>last_tile_dim_replicate)| last_tile_dims=\{(?P<kinds>[\w, ]+)\})?\}"
)
_MAXIMAL = re.compile(r"\{maximal device=(\d+)\}")


class TilingError(Exception):
    """A sharding that gives the value no tiles: the message says which and why."""


@dataclass(frozen=True)
class Tiling:
    """``tile_of[d]``: the tile index per dimension that device d holds, None for a device that holds none."""

    shards: tuple[int, ...]
    tile_of: tuple[tuple[int, ...] | None, ...]

    @staticmethod
    def replicated(rank: int, num_devices: int) -> Tiling:
        return Tiling((1,) * rank, ((0,) * rank,) * num_devices)

    def local_dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        return tuple(-(-n // s) for n, s in zip(dims, self.shards, strict=True))

    def region(self, device: int, dims: Sequence[int]) -> tuple[slice, ...] | None:
        """The elements of the global array that the device's tile holds; None where it holds no tile."""
        tile = self.tile_of[device]
        if tile is None:
            return None
        sizes = self.local_dims(dims)
        return tuple(
            slice(min(i * size, n), min((i + 1) * size, n))
            for i, size, n in zip(tile, sizes, dims, strict=True)
        )


def read_tiling(text: str, rank: int, num_devices: int) -> Tiling:
    """The tiling that a printed sharding gives a value of ``rank`` dimensions; TilingError where it gives none."""
    if text == "{replicated}":
        return Tiling.replicated(rank, num_devices)
    if found := _MAXIMAL.fullmatch(text):
        holder = int(found[1])
        return Tiling(
            (1,) * rank, tuple((0,) * rank if d == holder else None for d in range(num_devices))
        )
    found = _TILED.fullmatch(text)
    if found is None:
        raise TilingError(f"{text} is no sharding of a global array")
    kinds = _subgroups(found)
    if any(kind != "replicated" for kind in kinds):
        raise TilingError(f"{text}: a value with {kinds} devices is no global array")
    ids = device_array(found)
    if sorted(ids.ravel().tolist()) != list(range(num_devices)):
        raise TilingError(f"{text} does not name each of {num_devices} devices once")
    if ids.ndim != rank + len(kinds):
        raise TilingError(f"{text} does not fit a value of {rank} dimensions")
    tile_of: list[tuple[int, ...] | None] = [None] * num_devices
    for position in np.ndindex(ids.shape):
        tile_of[ids[position]] = position[:rank]
    return Tiling(ids.shape[:rank], tuple(tile_of))


def _subgroups(found: re.Match[str]) -> list[str]:
    if found["replicate"]:
        return ["replicated"]
    return [kind.strip() for kind in found["kinds"].split(",")] if found["kinds"] else []


def device_array(found: re.Match[str]) -> Array:
    """The array of device ids: listed, or counted through the transposed digits of the iota form."""
    dims = _numbers(found["dims"])
    if found["ids"]:
        return np.array(_numbers(found["ids"])).reshape(dims)
    sizes = _numbers(found["reshape"])
    order = _numbers(found["perm"]) if found["perm"] else list(range(len(sizes)))
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    ids = []
    for digits in np.ndindex(*[sizes[i] for i in order]):
        ids.append(sum(digit * strides[i] for digit, i in zip(digits, order, strict=True)))
    return np.array(ids).reshape(dims)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def split_tuple(text: str) -> list[str]:
    """The elements of a printed tuple sharding ``{{..}, {..}}``; a single sharding is its own only element."""
    if not text.startswith("{{") and text != "{}":
        return [text]
    parts: list[str] = []
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "{" and depth == 2:
            start = position
        if letter == "}" and depth == 1:
            parts.append(text[start : position + 1])
    return parts


def mesh_tiling(
    mesh: Mapping[str, int], spec: Sequence[Sequence[str]], device_ids: Sequence[int]
) -> Tiling:
    """The tiling of a value whose dimension d is split over the mesh axes ``spec[d]``, major to minor."""
    names, sizes = list(mesh), list(mesh.values())
    shards = tuple(math.prod(mesh[name] for name in axes) for axes in spec)
    tile_of: list[tuple[int, ...] | None] = [None] * len(device_ids)
    for number, place in enumerate(np.ndindex(*sizes)):
        at = dict(zip(names, place, strict=True))
        tile = []
        for axes in spec:
            index = 0
            for name in axes:
                index = index * mesh[name] + at[name]
            tile.append(index)
        tile_of[device_ids[number]] = tuple(tile)
    return Tiling(shards, tuple(tile_of))


# ---- arrays in and out
def padding_value(dtype: np.dtype[Any], device: int) -> Any:
    """Return the value that fills a tile beyond the array: nan where there is one, else an extreme value."""
    if dtype == np.bool_:
        return device % 2 == 0
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if device % 2 else limits.min
    return dtype.type(np.nan)


def scatter(array: Array, tiling: Tiling) -> list[Array]:
    """The array of each device, padding filled."""
    parts = []
    for device in range(len(tiling.tile_of)):
        part = np.full(
            tiling.local_dims(array.shape), padding_value(array.dtype, device), array.dtype
        )
        region = tiling.region(device, array.shape)
        if region is not None:
            valid = array[region]
            part[tuple(slice(0, n) for n in valid.shape)] = valid
        parts.append(part)
    return parts


def gather(parts: Sequence[Array], tiling: Tiling, dims: Sequence[int]) -> tuple[Array, list[str]]:
    """The global array, and a line for each device whose copy of a tile differs from an earlier one's."""
    whole = np.zeros(dims, parts[0].dtype)
    first: dict[tuple[int, ...], int] = {}
    disagreements = []
    for device, part in enumerate(parts):
        region, tile = tiling.region(device, dims), tiling.tile_of[device]
        if region is None or tile is None:
            continue
        valid = part[tuple(slice(0, r.stop - r.start) for r in region)]
        if tile not in first:
            first[tile] = device
            whole[region] = valid
        elif not same_bits(whole[region], valid):
            disagreements.append(f"devices {first[tile]} and {device} hold different tiles {tile}")
    return whole, disagreements


def same_bits(a: Array, b: Array) -> bool:
    """Equal elements; every nan is taken for the same."""
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    wide_a, wide_b = a.astype(_wide(a.dtype)), b.astype(_wide(b.dtype))
    return bool(np.all((wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))))


def _wide(dtype: np.dtype[Any]) -> type[Any]:
    return np.complex128 if dtype.kind == "c" else np.float64
