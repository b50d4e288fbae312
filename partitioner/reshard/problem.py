"""ReshardProblem: the inputs of a plan, and the splits of a dimension that line up."""

from __future__ import annotations

from partitioner.devices.axes import Axes, DeviceAxes
from partitioner.partition.shard_state import ShardState, tile_size
from spmd.errors import ShardingError
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, PrimitiveType

_WIDTHS = {
    1: PrimitiveType.U8,
    2: PrimitiveType.U16,
    4: PrimitiveType.U32,
    8: PrimitiveType.U64,
    16: PrimitiveType.C128,
}


@dataclass(frozen=True, slots=True)
class ReshardProblem:
    """An array of global sizes ``dims`` and ``item_bytes`` per element, to be brought to the state ``target``.

    Tiles line up when a shard's tile is cut into whole tiles of the finer split: 9 elements over 4 devices have tiles
    of 3, over 2 devices tiles of 5, so neither cutting the second nor joining the first gives the other. A dimension
    that is not split at all lines up with everything: it is padded before it is cut, and trimmed after it is joined.

    ``usable``: the axes that steps may involve. Along other axes the value may differ (manual axes).
    """

    axes: DeviceAxes
    dims: tuple[int, ...]
    item_bytes: int
    target: ShardState
    usable: Axes

    @property
    def shape(self) -> ArrayShape:
        """The shape of these sizes with elements of the right width; costs depend on nothing else."""
        return ArrayShape(_WIDTHS[self.item_bytes], self.dims)

    def lines_up(self, dim: int, coarse: int, factor: int) -> bool:
        """Return whether each of ``coarse`` shards of a dimension is the union of ``factor`` of its ``coarse * factor``
        shards.
        """
        size = self.dims[dim]
        return coarse == 1 or tile_size(size, coarse) == factor * tile_size(size, coarse * factor)

    def can_split(self, state: ShardState, dim: int, added: Axes) -> bool:
        """Return whether ``added`` may be appended to the axes of ``dim`` by cutting each tile."""
        return self.lines_up(dim, self.axes.count(state.dims[dim]), self.axes.count(added))

    def can_join(self, state: ShardState, dim: int, removed: int) -> bool:
        """Return whether the ``removed`` most minor axes may be taken off ``dim`` by joining tiles."""
        dim_axes = state.dims[dim]
        remaining = self.axes.count(dim_axes[: len(dim_axes) - removed])
        return self.lines_up(dim, remaining, self.axes.count(dim_axes[len(dim_axes) - removed :]))

    def settled(self, state: ShardState, dim: int) -> int:
        """Return the number of leading axes of ``dim`` that equal the target's."""
        count = 0
        for have, want in zip(state.dims[dim], self.target.dims[dim], strict=False):
            if have != want:
                break
            count += 1
        return count

    def missing(self, state: ShardState, dim: int) -> Axes:
        """Return the target's axes of ``dim`` that only need appending; empty if an axis that the target lacks is in
        the way.
        """
        settled = self.settled(state, dim)
        return self.target.dims[dim][settled:] if settled == len(state.dims[dim]) else ()

    def removable(self, state: ShardState) -> Axes:
        """Return the axes over which the target is no longer partial."""
        return tuple(a for a in state.partial if a not in self.target.partial)

    def free(self, state: ShardState) -> Axes:
        """Return the usable axes along which ``state`` holds copies."""
        taken = (*state.used, *state.partial)
        return tuple(a for a in self.usable if a not in taken)


def available_prefix(wanted: Axes, available: Axes) -> Axes:
    """Return the longest prefix of ``wanted`` whose axes ``available`` contains."""
    count = 0
    while count < len(wanted) and wanted[count] in available:
        count += 1
    return wanted[:count]


def check_states(axes: DeviceAxes, rank: int, source: ShardState, target: ShardState) -> None:
    """Raise ShardingError unless both describe a value of ``rank`` and the target is partial only where the
    source is.
    """
    for state in (source, target):
        named = (*state.used, *state.partial)
        if state.rank != rank:
            raise ShardingError(f"{state} has {state.rank} dimensions, its value has {rank}")
        if len(dict.fromkeys(named)) != len(named) or any(a not in axes.all for a in named):
            raise ShardingError(f"{state} names an axis twice or one that {axes} does not have")
        if state.partial and state.reduction is None:
            raise ShardingError(f"{state} is partial but names no reduction")
    if any(a not in source.partial for a in target.partial):
        raise ShardingError(f"cannot make {source} partial over the axes of {target}")
    if target.partial and target.reduction is not source.reduction:
        raise ShardingError(f"cannot turn {source} into {target}: the reductions differ")


def canonical(state: ShardState) -> ShardState:
    """Return the state with partial axes in ascending order: their order has no meaning."""
    if not state.partial:
        return state if state.reduction is None else state.without_partial()
    return ShardState(state.dims, tuple(sorted(state.partial)), state.reduction)
