"""The host's side of infeeds and outfeeds of a program on several devices.

A value is a global array on the host, and is divided among the devices by the instruction's sharding. Each device takes
the items in their order, at its own pace; the tiles that the devices give are joined when a run is over:

    infeed     item 0, item 1, ...     each device takes its tile of item 0, then of item 1
    outfeed    value 0, value 1, ...   each is joined from the tiles that the devices have given

If the caller passes a function instead of items, it feeds or receives the tiles of each device separately.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np

from runtime.arrays.sharded_arrays import ArraySpec, copy_shard, gather
from spmd.errors import RunError
from spmd.host_feed import Item, item_of, next_item
from spmd.host_feed import require_fit as require_tiles
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape, Shape, array_shapes, as_array

if TYPE_CHECKING:
    from spmd.hlo.host_functions import Callback

Infeed: TypeAlias = "Iterable[Item] | Callable[[int], Item] | ItemSource | TileSource"
Outfeed: TypeAlias = "list[Item] | Callable[[int, Item], None]"


@dataclass(frozen=True)
class FeedSite:
    """Infeed or outfeed of a program for ``num_partitions`` partitions.

    name: name of the instruction. shape: shape of the value on one device. specs: global shape and sharding of each
    array leaf. partition: the only partition that takes part, or None if all do.
    """

    name: str
    shape: Shape
    specs: tuple[ArraySpec, ...]
    partition: int | None
    num_partitions: int

    @property
    def tiles(self) -> tuple[ArrayShape, ...]:
        """Return the shapes of the array leaves on one device."""
        return array_shapes(self.shape)


@runtime_checkable
class ItemSource(Protocol):
    """Source of global items, which are fed in order."""

    def next(self, site: FeedSite) -> list[NDArray]:
        """Return the array leaves of the next item for ``site``. Raises SpmdError if there is none."""
        ...


@runtime_checkable
class TileSource(Protocol):
    """Source of tiles, which are fed to each device separately."""

    def next_tile(self, site: FeedSite, device: int) -> list[NDArray]:
        """Return the array leaves of the next tile of ``device``. Raises SpmdError if there is none."""
        ...


@dataclass(frozen=True)
class _Function:
    """TileSource that calls a function from a device's number to the device's next tile."""

    feed: Callable[[int], Item]

    def next_tile(self, site: FeedSite, device: int) -> list[NDArray]:
        """Return the array leaves of the next tile of ``device``."""
        return next_item(iter([self.feed(device)]), site.name)


@dataclass(frozen=True)
class _Items:
    """ItemSource that returns the items of an iterator; None has no items."""

    items: Iterator[Item] | None

    def next(self, site: FeedSite) -> list[NDArray]:
        """Return the array leaves of the next item. Raises RunError if there is none."""
        return next_item(self.items, site.name)


@dataclass(frozen=True)
class Given:
    """Arrays of the tile that a device has given at an outfeed."""

    site: FeedSite
    arrays: tuple[NDArray, ...]


class HostFeeds:
    """Infeeds and outfeeds of one run. Threads that run different devices may use it concurrently."""

    def __init__(self, infeed: Infeed | None, outfeed: Outfeed | None, own: range) -> None:
        """Begin a run that takes items or tiles from ``infeed`` and gives values to ``outfeed``.

        outfeed: a function (device, tile) to call, a list, for which tiles are collected in ``given``, or None to drop
        the values. own: the devices that this process runs.
        """
        self.outfeed = outfeed
        #: Arrays that each device has given at outfeeds, in the order of execution.
        self.given: dict[int, list[Given]] = {device: [] for device in own}
        self._source = _source_of(infeed)
        self._lock = threading.Lock()
        #: Items that some devices have taken and others have not yet, and the number of the first of these items.
        self._waiting: list[list[NDArray]] = []
        self._first = 0
        self._taken: dict[int, int] = dict.fromkeys(own, 0)
        self._partition: int | None = None

    @property
    def num_taken(self) -> int:
        """Return the number of items that have been taken from the source."""
        return self._first + len(self._waiting)

    def next_tile(self, site: FeedSite, device: int) -> list[NDArray]:
        """Return the tile of ``device`` of its next item. Raises RunError if there is none or it does not fit."""
        if isinstance(self._source, TileSource):
            arrays = self._source.next_tile(site, device)
            require_tiles(arrays, site.shape, site.name)
            return arrays
        with self._lock:
            item = self._next(self._source, site, device)
        partition = device % site.num_partitions
        if len(item) != len(site.tiles):
            raise RunError(
                f"{site.name}: expected {len(site.tiles)} arrays for each execution, found {len(item)}"
            )
        fed = zip(item, site.tiles, site.specs, strict=True)
        return [_tile(array, tile, spec, partition, site) for array, tile, spec in fed]

    def put(self, site: FeedSite, device: int, arrays: Sequence[NDArray]) -> None:
        """Copy ``arrays``, the leaves of a tile that ``device`` gives at ``site``, and pass the copies on."""
        copies = tuple(np.array(array, order="C") for array in arrays)
        if callable(self.outfeed):
            self.outfeed(device, item_of(site.shape, iter(copies)))
        elif self.outfeed is not None:
            self.given[device].append(Given(site, copies))

    def _next(self, source: ItemSource, site: FeedSite, device: int) -> list[NDArray]:
        """Return the next item for ``device``. Each item is taken from the source once, by the first device.

        Raises RunError if infeeds of one partition and infeeds of all or of another partition take turns.
        """
        if self.num_taken and self._partition != site.partition:
            raise RunError(
                f"{site.name}: infeeds of one device and infeeds of all or other devices take turns, so global items "
                "cannot be assigned to devices; feed each device by a function or a file of its own (%r)"
            )
        self._partition = site.partition
        number = self._taken.setdefault(device, 0)
        if number == self.num_taken:
            self._waiting.append(source.next(site))
        self._taken[device] += 1
        item = self._waiting[number - self._first]
        waits = [n for d, n in self._taken.items() if _is_fed(site, d)]
        done = min(waits) - self._first
        del self._waiting[:done]
        self._first += done
        return item


def _source_of(infeed: Infeed | None) -> ItemSource | TileSource:
    """Return the source of an infeed argument: a source itself, a function of the device, or an iterable of items."""
    if isinstance(infeed, (ItemSource, TileSource)):
        return infeed
    if callable(infeed):
        return _Function(infeed)
    return _Items(None if infeed is None else iter(infeed))


def _is_fed(site: FeedSite, device: int) -> bool:
    """Return whether ``device`` takes part in ``site``."""
    return site.partition is None or device % site.num_partitions == site.partition


def _tile(
    array: NDArray, tile: ArrayShape, spec: ArraySpec, partition: int, site: FeedSite
) -> NDArray:
    """Return the tile of ``array`` for ``partition``. The sizes of ``array`` determine the padding of the last tile.

    Raises RunError if the array's tiles do not have the shape and type of ``tile``.
    """
    shape = replace(tile, dims=array.shape) if array.ndim == tile.rank else tile
    sharding = spec.sharding
    wanted = as_array(sharding.shard_shape(shape)).dims if sharding is not None else shape.dims
    fits = array.ndim == tile.rank and wanted == tile.dims
    if not fits or array.dtype != tile.element_type.numpy:
        raise RunError(
            f"{site.name}: expected {spec.shape}, found {array.dtype}{list(array.shape)}"
        )
    part = np.empty(tile.dims, array.dtype)
    copy_shard(array, sharding, shape, partition, part)
    return part


def joined(given: Sequence[Sequence[Given]], num_partitions: int) -> list[Item]:
    """Return the global values that the devices of replica 0 have given, joined from their tiles.

    given: for each device, its tiles in the order of execution. Raises RunError if devices have given tiles of
    different outfeeds at the same time.
    """
    queues = [list(own) for own in given[:num_partitions]]
    values: list[Item] = []
    while any(queues):
        own, site = _next_given(queues)
        tiles = [queues[partition].pop(0).arrays for partition in own]
        arrays = [
            gather(
                [tile[k] for tile in tiles], None if len(own) == 1 else spec.sharding, spec.shape
            )
            for k, spec in enumerate(site.specs)
        ]
        values.append(item_of(site.shape, iter(arrays)))
    return values


def _next_given(queues: Sequence[Sequence[Given]]) -> tuple[list[int], FeedSite]:
    """Return the partitions that hold the tiles of the next value, and the value's outfeed.

    Values of a single partition come first. Raises RunError if the next tiles of all partitions are of different
    outfeeds, or if some partitions have none.
    """
    for partition, queue in enumerate(queues):
        if queue and queue[0].site.partition == partition:
            return [partition], queue[0].site
    everyone = list(range(len(queues)))
    names = {queue[0].site.name if queue else "nothing" for queue in queues}
    if len(names) > 1:
        raise RunError(
            f"devices are at different outfeeds ({', '.join(sorted(names))}), so their tiles cannot be joined; "
            "receive each device's arrays by a function or a file of its own (%r)"
        )
    return everyone, queues[0][0].site


def given_bytes(given: Sequence[Given]) -> bytes:
    """Serialize the tiles that one device has given, for another process that runs the same program.

    The bytes are the length of the names (8 bytes), the names of the outfeeds as JSON, and the bytes of the arrays.
    """
    names = json.dumps([one.site.name for one in given]).encode()
    arrays = (array.tobytes() for one in given for array in one.arrays)
    return b"".join((len(names).to_bytes(8, "little"), names, *arrays))


def read_given(data: bytes, sites: Sequence[FeedSite]) -> list[Given]:
    """Return the tiles that ``given_bytes`` has serialized. ``sites``: the outfeeds of the program."""
    named = {site.name: site for site in sites}
    end = 8 + int.from_bytes(data[:8], "little")
    given = []
    for name in json.loads(data[8:end]):
        arrays = []
        for tile in named[name].tiles:
            dtype = tile.element_type.numpy
            array = np.frombuffer(data, dtype, tile.num_elements, end).reshape(tile.dims)
            arrays.append(array)
            end += array.nbytes
        given.append(Given(named[name], tuple(arrays)))
    return given


@dataclass
class HostChannel:
    """Channel of a loaded program to the host: feeds of the present run, and the Python functions that it calls."""

    present: HostFeeds = field(default_factory=lambda: HostFeeds(None, None, range(0)))
    #: Python functions that the program calls, by number. They are set before the program is loaded.
    callbacks: Sequence[Callback] = ()

    def next_tile(self, site: FeedSite, device: int) -> list[NDArray]:
        """Return the tile of ``device`` of its next item in the present run (``HostFeeds.next_tile``)."""
        return self.present.next_tile(site, device)

    def put(self, site: FeedSite, device: int, arrays: Sequence[NDArray]) -> None:
        """Give a tile of ``device`` to the outfeed of the present run (``HostFeeds.put``)."""
        self.present.put(site, device, arrays)

    @contextmanager
    def open_for(self, feeds: HostFeeds) -> Iterator[None]:
        """Return a context in which runs use ``feeds``."""
        before, self.present = self.present, feeds
        try:
            yield
        finally:
            self.present = before
