"""Feed sites of a module's infeeds and outfeeds, and the host's side of these for the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.arrays.host_feed import FeedSite, HostFeeds, joined
from runtime.arrays.sharded_arrays import ArraySpec, global_shape
from spmd.analysis.outfeed_shape import global_shape_text
from spmd.hlo.instruction import HloInstruction
from spmd.host_feed import Item, fed_shape
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import array_shapes
from spmd.sharding import HloSharding, ShardingKind
from spmd.text.shape_text import parse_shape


def feed_site(instruction: HloInstruction, num_partitions: int) -> FeedSite:
    """Return the feed site of ``instruction``, an infeed or outfeed of a program for ``num_partitions`` partitions.

    The global shapes are those that the instruction states, or else the largest ones that its shardings divide into
    tiles of its shape.
    """
    shape = fed_shape(instruction)
    tiles = array_shapes(shape)
    stated = instruction.sharding
    shardings: Sequence[HloSharding | None] = (None,) * len(tiles)
    if stated is not None:
        shardings = (stated.elements if stated.is_tuple else (stated,) * len(tiles))[: len(tiles)]
    said = global_shape_text(instruction)
    if said is not None:
        wholes = array_shapes(parse_shape(said))
    else:
        wholes = tuple(map(global_shape, tiles, shardings))
    only = {
        one.device if one is not None and one.kind is ShardingKind.MAXIMAL else None
        for one in shardings
    }
    return FeedSite(
        instruction.name,
        shape,
        tuple(ArraySpec(w.without_layout(), s) for w, s in zip(wholes, shardings, strict=True)),
        only.pop() if len(only) == 1 else None,
        num_partitions,
    )


@dataclass(frozen=True)
class ReferenceFeed:
    """Host's side of a program for ``num_partitions`` partitions in the evaluator (a spmd.host_feed.HostFeed)."""

    feeds: HostFeeds
    num_partitions: int

    def take(self, infeed: HloInstruction, device: int) -> list[NDArray]:
        """Return the tile of ``device`` of its next item. Raises RunError if there is none or it does not fit."""
        return self.feeds.next_tile(feed_site(infeed, self.num_partitions), device)

    def put(self, outfeed: HloInstruction, device: int, arrays: Sequence[NDArray]) -> None:
        """Copy the array leaves of the tile that ``device`` gives at ``outfeed``."""
        self.feeds.put(feed_site(outfeed, self.num_partitions), device, arrays)

    @property
    def given(self) -> list[Item]:
        """Return the global values that the devices have given at outfeeds, in order (see ``joined``)."""
        everyone = [self.feeds.given[device] for device in sorted(self.feeds.given)]
        return joined(everyone, self.num_partitions)
