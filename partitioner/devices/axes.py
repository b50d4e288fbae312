"""Device axes: the devices of a module as digits of a mixed-radix number.

All shardings of a module are refined to one common list of axes, major to minor, whose sizes multiply to the number of
devices N. Axis i has stride ``prod(sizes[i+1:])``; the coordinate of device d along it is ``d //
stride % size``. A tensor's
sharding is then a list of axis numbers per dimension, so nothing here grows with N.

Example: N = 8 with ``{devices=[4,1,2]<=[8] last_tile_dim_replicate}`` and ``{devices=[2,4]<=[4,2]T(1,0) ...}`` cut the
range of 8 devices at strides 2 and 2: axes (4, 2). The first is dims ((0,), ()), the second ((1,),).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from spmd.device import IotaTile, ReplicaGroups
from spmd.errors import ShardingError
from spmd.iota import recognise_iota, strides_of
from spmd.lazy_dataclass import dataclass
from spmd.mesh import AxisRef, Mesh
from spmd.sharding import HloSharding, ShardingKind, SubgroupType, TileAssignment

Axes = tuple[int, ...]  # axis numbers, major to minor
DimAxes = tuple[Axes, ...]  # one entry per dimension


@dataclass(frozen=True, slots=True)
class DeviceAxes:
    """Common axes of a module. All sizes are > 1; one device has no axes.

    They count the partitions of one replica. Each of ``replicas`` runs the program on its own devices (device = replica
    x partitions + partition), so replicas matter only for groups that name devices.
    """

    sizes: tuple[int, ...]
    replicas: int = 1

    @property
    def num_devices(self) -> int:
        return math.prod(self.sizes)

    @property
    def all(self) -> Axes:
        return tuple(range(len(self.sizes)))

    def stride(self, axis: int) -> int:
        return math.prod(self.sizes[axis + 1 :])

    def count(self, axes: Iterable[int]) -> int:
        """Return the number of shards made by ``axes``."""
        total = 1
        for axis in axes:
            total *= self.sizes[axis]
        return total

    def spread(self, axes: Iterable[int]) -> Axes:
        """Return the axes not in ``axes``, in order."""
        used = tuple(axes)
        return tuple(a for a in self.all if a not in used)

    def runs(self, axes: Axes) -> tuple[Axes, ...]:
        """Cut ``axes`` into runs of neighbours; each run is one digit of the device number."""
        runs: list[list[int]] = []
        for axis in axes:
            if runs and runs[-1][-1] + 1 == axis:
                runs[-1].append(axis)
            else:
                runs.append([axis])
        return tuple(tuple(run) for run in runs)

    def groups(self, axes: Axes) -> ReplicaGroups:
        """Return the groups of devices that differ only along ``axes``, for all replicas; members are ordered by
        ``axes``.
        """
        if self.replicas == 1:
            return self.partition_groups(axes)
        shifted = tuple(axis + 1 for axis in axes)
        return DeviceAxes((self.replicas, *self.sizes)).partition_groups(shifted)

    def partition_groups(self, axes: Axes) -> ReplicaGroups:
        """Return the groups of partitions that differ only along ``axes``; members are ordered by ``axes``, major
        first.
        """
        return ReplicaGroups(iota=self.lines(axes))

    def lines(self, axes: Axes) -> IotaTile:
        """Return the partitions in rows. Those of one row differ only along ``axes``, in the order of their coordinate
        there.
        """
        rest = self.spread(axes)
        return _compact((self.count(rest), self.count(axes)), self.sizes, (*rest, *axes))

    def sharding(self, dims: DimAxes, manual: Axes = (), partial: Axes = ()) -> HloSharding:
        """Return the HloSharding of a value whose dimension i is split by ``dims[i]``; the other axes replicate."""
        used = tuple(a for axes in dims for a in axes)
        if not used and not manual and not partial:
            return HloSharding.replicated()
        rest = self.spread((*used, *manual, *partial))
        tile = [self.count(axes) for axes in dims]
        order = list(used)
        kinds: list[SubgroupType] = []
        for axes, kind in (
            (manual, SubgroupType.MANUAL),
            (partial, SubgroupType.UNREDUCED),
            (rest, SubgroupType.REPLICATED),
        ):
            if axes:
                tile.append(self.count(axes))
                order.extend(axes)
                kinds.append(kind)
        if len(kinds) == 1 and not used:
            return _ONE_SUBGROUP[kinds[0]]
        return HloSharding.tiled(
            TileAssignment(_compact(tuple(tile), self.sizes, tuple(order))), tuple(kinds)
        )

    def axes_of_mesh(self, mesh: Mesh) -> dict[str, Axes]:
        """Return the device axes of each axis of ``mesh`` (device order must be the identity)."""
        result: dict[str, Axes] = {}
        stride = self.num_devices
        for name, size in mesh.axes:
            result[name] = self._between(stride, stride // size)
            stride //= size
        return result

    def axes_of_ref(self, mesh: Mesh, ref: AxisRef) -> Axes:
        """Return the device axes of a (sub-)axis reference."""
        full = self.axes_of_mesh(mesh)[ref.name]
        if ref.sub is None:
            return full
        before, size = ref.sub
        stride = self.stride(full[-1]) * self.count(full) // before if full else 1
        return self._between(stride, stride // size)

    def axes_of_sharding(
        self, sharding: HloSharding, rank: int
    ) -> tuple[DimAxes, dict[SubgroupType, Axes]]:
        """Return the axes of each dimension, and the axes of each subgroup kind, of a tiled iota sharding.

        Raises ShardingError if these axes do not describe it (an explicit device list, another factorization).
        """
        if sharding.tiles is None:
            return ((),) * rank, {}
        if sharding.tiles.num_devices != self.num_devices:
            raise ShardingError(
                f"sharding {sharding} is over {sharding.tiles.num_devices} devices, expected {self.num_devices}"
            )
        iota = as_iota(sharding.tiles)
        major_to_minor: list[int] = []
        strides = strides_of(iota.reshape_dims)
        for d in iota.transpose_perm:
            major_to_minor.extend(self._between(strides[d] * iota.reshape_dims[d], strides[d]))
        parts: list[Axes] = []
        position = 0
        for size in iota.dims:
            start, count = position, 1
            while count < size and position < len(major_to_minor):
                count *= self.sizes[major_to_minor[position]]
                position += 1
            if count != size:
                raise ShardingError(
                    f"sharding {sharding} does not fit the device axes {self.sizes}"
                )
            parts.append(tuple(major_to_minor[start:position]))
        groups: dict[SubgroupType, Axes] = {}
        for kind, axes in zip(
            sharding.subgroup_types, parts[len(parts) - len(sharding.subgroup_types) :], strict=True
        ):
            groups[kind] = groups.get(kind, ()) + axes
        dims = tuple(parts[: len(parts) - len(sharding.subgroup_types)])
        if len(dims) != rank:
            raise ShardingError(
                f"sharding {sharding} has {len(dims)} dimensions, its value has {rank}"
            )
        return dims, groups

    def _between(self, outer: int, inner: int) -> Axes:
        """Return the axes that cover the digits from stride ``outer`` (exclusive) down to ``inner``."""
        found = tuple(
            a
            for a in self.all
            if inner <= self.stride(a) and self.stride(a) * self.sizes[a] <= outer
        )
        if self.count(found) * inner != outer:
            raise ShardingError(
                f"no device axes of {self.sizes} lie between strides {outer} and {inner}"
            )
        return found


#: A sharding with one subgroup that has all devices and splits no dimension.
_ONE_SUBGROUP = {
    SubgroupType.REPLICATED: HloSharding.replicated(),
    SubgroupType.MANUAL: HloSharding.manual(),
    SubgroupType.UNREDUCED: HloSharding(ShardingKind.UNREDUCED),
}


def common_axes(
    num_devices: int,
    shardings: Iterable[HloSharding],
    meshes: Iterable[tuple[Mesh, Sequence[AxisRef]]] = (),
) -> DeviceAxes:
    """Return the coarsest factorization of ``num_devices`` in which every given iota sharding is a list of axes.

    A sharding whose cuts do not nest with the earlier ones (6 devices as [2,3] and as [3,2]) is left out. A request for
    its axes raises ShardingError, and the caller takes the fallback.
    """
    cuts = {1, num_devices}
    for wanted in [*_mesh_cuts(num_devices, meshes), *_sharding_cuts(num_devices, shardings)]:
        candidate = sorted(cuts | wanted)
        if all(b % a == 0 for a, b in itertools.pairwise(candidate)):
            cuts |= wanted
    ordered = sorted(cuts, reverse=True)
    return DeviceAxes(tuple(a // b for a, b in itertools.pairwise(ordered)))


def _mesh_cuts(n: int, meshes: Iterable[tuple[Mesh, Sequence[AxisRef]]]) -> Iterable[set[int]]:
    for mesh, refs in meshes:
        if math.prod(size for _, size in mesh.axes) != n:
            continue
        cuts: set[int] = set()
        outer: dict[str, int] = {}
        stride = n
        for name, size in mesh.axes:
            outer[name] = stride
            stride //= size
            cuts.add(stride)
        yield cuts
        for ref in refs:
            if ref.sub is not None:
                before, size = ref.sub
                yield {outer[ref.name] // before, outer[ref.name] // before // size}


def _sharding_cuts(n: int, shardings: Iterable[HloSharding]) -> Iterable[set[int]]:
    for sharding in shardings:
        if sharding.tiles is None or sharding.tiles.num_devices != n:
            continue
        try:
            iota = as_iota(sharding.tiles)
        except ShardingError:
            continue
        found = _cuts(iota)
        if found is not None:
            yield found


def _cuts(iota: IotaTile) -> set[int] | None:
    """Return the strides at which a tile assignment cuts the device number. Returns None if the border between two
    tiles would cut a digit of the device number.
    """
    strides = strides_of(iota.reshape_dims)
    cuts = set(strides)
    sizes = iter(iota.dims)
    need = 1
    for d in iota.transpose_perm:
        inner, left = strides[d], iota.reshape_dims[d]
        while left > 1:
            while need == 1:
                need = next(sizes, 0)
                if need == 0:
                    return None
            common = math.gcd(left, need)
            if common == 1:
                return None
            left //= common
            need //= common
            cuts.add(inner * left)
    return cuts


def as_iota(tiles: TileAssignment) -> IotaTile:
    """Return the iota form. An explicit list is recognised if it is a transposed iota. Raises ShardingError
    otherwise.
    """
    if tiles.devices is None:
        return tiles.iota
    found = recognise_iota(tiles.devices)
    if found is None:
        raise ShardingError(f"the device list of {tiles} is not a transposed iota")
    return IotaTile(tiles.dims, *found)


def _compact(dims: tuple[int, ...], sizes: tuple[int, ...], order: Axes) -> IotaTile:
    """Return the iota tile of axes taken in ``order``, with neighbouring digits merged."""
    if not sizes:
        return IotaTile(dims, (1,), (0,))
    runs = DeviceAxes(sizes).runs(order)
    by_position = sorted(runs, key=lambda run: run[0])
    reshape = tuple(math.prod(sizes[a] for a in run) for run in by_position)
    return IotaTile(dims, reshape, tuple(by_position.index(run) for run in runs))
