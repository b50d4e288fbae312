"""Files of infeeds and outfeeds: .npz archives of infeed0, infeed1, ... and of outfeed0, outfeed1, ...

Each array leaf has an entry of its own, in the order in which the program takes or gives it: a loop takes the next ones
in every trip, and the next of several steps goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from launch.data.inputs import (
    Array,
    InputError,
    file_digest,
    from_storage,
    is_per_device,
    of_device,
    write_arrays,
)
from launch.ranks.messages import report_note
from runtime.arrays.host_feed import FeedSite, HostFeeds, Infeed, Outfeed
from runtime.executable import Executable
from spmd.errors import SpmdError
from spmd.hlo.opcode import Opcode
from spmd.host_feed import HostFeed, Item, fed_shape, flat_item
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, array_shapes

if TYPE_CHECKING:
    from spmd.hlo import HloInstruction, HloModule


class FeedOptionError(SpmdError):
    """A program with infeeds, and no file that feeds it; or files that do not go with it."""


class FeedFile:
    """The arrays of a file in the order in which they are taken (runtime.arrays.host_feed.ItemSource)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        from launch.data.npz import StoredArrays  # only for feeds

        self._stored = StoredArrays(path)
        self.num_taken = 0

    @property
    def num_left(self) -> int:
        """Arrays that nothing has taken."""
        kind = self._stored.name_of("infeed", 0)[:-1]
        return sum(name.startswith(kind) for name in self._stored) - self.num_taken

    def next(self, site: FeedSite) -> list[Array]:
        return self.read_leaves(site.name, [spec.shape for spec in site.specs], site.tiles)

    def read_leaves(
        self, name: str, expected: Sequence[ArrayShape], like: Sequence[ArrayShape]
    ) -> list[Array]:
        """Return the next arrays, of the types of ``like``. ``expected``: what infeed ``name`` takes, for messages."""
        found = []
        for wanted, leaf in zip(expected, like, strict=True):
            entry = self._stored.name_of("infeed", self.num_taken)
            if entry not in self._stored:
                raise InputError(
                    f"{self.path}: {entry} ({wanted.without_layout()}, for {name}) is missing: "
                    f"the file has {self.num_taken} arrays, and the program reads more"
                )
            array = self._stored[entry]
            shape = ArrayShape(leaf.element_type, array.shape)
            found.append(from_storage(array, shape, f"{self.path}: {entry}"))
            self.num_taken += 1
        return found


class _FeedFiles:
    """A file of tiles for each device (runtime.arrays.host_feed.TileSource)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[int, FeedFile] = {}

    def next_tile(self, site: FeedSite, device: int) -> list[Array]:
        if device not in self._files:
            self._files[device] = FeedFile(of_device(self._path, device))
        return self._files[device].read_leaves(site.name, site.tiles, site.tiles)


class GivingFeed(HostFeed, Protocol):
    """A HostFeed that keeps what it is given."""

    @property
    def given(self) -> list[Item]: ...


class _UnpartitionedFeed:
    """The host's side of a program that is evaluated unpartitioned (spmd.host_feed.HostFeed)."""

    def __init__(self, file: FeedFile | None) -> None:
        self._file = file
        self.given: list[Item] = []

    def take(self, infeed: HloInstruction, _: int) -> list[Array]:
        shapes = array_shapes(fed_shape(infeed))
        if self._file is None:
            raise FeedOptionError(_missing([infeed.name]))
        arrays = self._file.read_leaves(infeed.name, shapes, shapes)
        for array, shape in zip(arrays, shapes, strict=True):
            if array.shape != shape.dims:
                found = f"{array.dtype}{list(array.shape)}"
                raise InputError(f"{infeed.name}: expected {shape.without_layout()}, found {found}")
        return arrays

    def put(self, _: HloInstruction, __: int, arrays: Sequence[Array]) -> None:
        self.given += [array.copy() for array in arrays]


@dataclass(frozen=True)
class FeedOptions:
    """``--infeed`` and ``--outfeed``. A name with ``%r`` in it stands for one file of tiles for each device."""

    infeed: Path | None = None
    outfeed: Path | None = None

    def require_for(self, infeeds: Sequence[str]) -> None:
        """Raise FeedOptionError if the program has ``infeeds`` and no file feeds them."""
        if infeeds and self.infeed is None:
            raise FeedOptionError(_missing(infeeds))

    def require_unpartitioned(self) -> None:
        """Raise FeedOptionError for files of tiles, which an evaluation of the unpartitioned program cannot use."""
        for path in (self.infeed, self.outfeed):
            if path is not None and is_per_device(path):
                raise FeedOptionError(
                    f"{path}: the reference evaluator needs files of global arrays, not of tiles (%r)"
                )

    def source(self) -> Infeed | None:
        """Return what feeds the devices of a run, from the first array on."""
        if self.infeed is None:
            return None
        return _FeedFiles(self.infeed) if is_per_device(self.infeed) else FeedFile(self.infeed)

    def reference(self, module: HloModule, *, partitioned: bool) -> GivingFeed:
        """Return the feed of an evaluation of ``module``, unpartitioned or ``partitioned``, from the first array on."""
        if partitioned:
            devices = range(module.num_partitions * module.replica_count)
            # Deferred: the reference evaluator finds feeds by instruction, which compiled programs do not have.
            from runtime.arrays.feed_sites import ReferenceFeed

            feeds = HostFeeds(self.source(), [], devices)
            return ReferenceFeed(feeds, module.num_partitions)
        self.require_unpartitioned()
        return _UnpartitionedFeed(None if self.infeed is None else FeedFile(self.infeed))


NO_FILES = FeedOptions()


class OutfeedTiles:
    """Outfeeds of each device of this process, which are written to a file for each."""

    def __init__(self, devices: Sequence[int]) -> None:
        self._given: dict[int, list[Array]] = {device: [] for device in devices}

    def __call__(self, device: int, item: Item) -> None:
        self._given[device] += flat_item(item)

    def write(self, path: Path) -> None:
        for device, arrays in self._given.items():
            write_arrays(of_device(path, device), "outfeed", arrays)


def infeed_names(module: HloModule) -> list[str]:
    return [x.name for c in module.computations_post_order() for x in c.with_opcode(Opcode.INFEED)]


def outfeed_for(options: FeedOptions, executable: Executable, *, wanted: bool) -> Outfeed | None:
    """Return the receiver of a run's outfeeds. ``wanted``: whether global values are needed."""
    if options.outfeed is not None and is_per_device(options.outfeed):
        return OutfeedTiles(executable.devices)
    return [] if wanted and executable.program.outfeeds else None


def write_outfeed(options: FeedOptions, outfeed: Outfeed | None, *, writes: bool) -> None:
    """Write the values of outfeeds. ``writes``: whether this process writes global values."""
    if options.outfeed is None:
        return
    if isinstance(outfeed, OutfeedTiles):
        outfeed.write(options.outfeed)
    elif writes:
        write_arrays(options.outfeed, "outfeed", leaves_of(outfeed))


def note_what_is_left(source: Infeed | None) -> None:
    """Note on standard error that a file has arrays that no infeed read."""
    if isinstance(source, FeedFile) and source.num_left > 0:
        report_note(f"{source.path}: no infeed read the last {source.num_left} of its arrays")


def feed_digest(path: Path) -> str:
    """Return a digest of the infeed files, which ranks compare; the arrays are not read for it."""
    return str(path) if is_per_device(path) else file_digest(path)


def leaves_of(outfeed: Outfeed | None) -> list[Array]:
    """Return the arrays of global values, one after the other."""
    return flat_item(outfeed) if isinstance(outfeed, list) else []


def _missing(infeeds: Sequence[str]) -> str:
    return (
        f"the program reads arrays from the host ({', '.join(infeeds[:3])}): "
        "pass them by --infeed F.npz as infeed0, infeed1, ... in execution order"
    )
