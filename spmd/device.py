"""Groups of devices in collectives, and kinds of reductions.

A device is an integer; with replicas, device = replica * num_partitions + partition.
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np

from spmd.errors import UnsupportedError
from spmd.lazy_dataclass import dataclass
from spmd.limits import MAX_DEVICES


class ReductionKind(Enum):
    """Operation that combines partial values."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    XOR = "xor"


class CollectiveGroupMode(Enum):
    """Meaning of the ids in replica groups (XLA's GetCollectiveOpGroupMode)."""

    CROSS_REPLICA = "cross_replica"
    CROSS_PARTITION = "cross_partition"
    CROSS_REPLICA_AND_PARTITION = "cross_replica_and_partition"
    FLATTENED_ID = "flattened_id"


def check_device_count(count: int) -> None:
    """Raise UnsupportedError if a list of so many ids would exhaust memory."""
    if count > MAX_DEVICES:
        raise UnsupportedError(
            f"{count} device ids are too many to list, the limit is {MAX_DEVICES}"
        )


@dataclass(frozen=True, slots=True)
class IotaTile:
    """Compact form ``[dims]<=[reshape_dims]T(perm)`` of an array of ids 0..n-1.

    ``ids = arange(n).reshape(reshape_dims).transpose(transpose_perm).reshape(dims)``
    """

    dims: tuple[int, ...]
    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...]

    @staticmethod
    def of(dims: tuple[int, ...]) -> IotaTile:
        return IotaTile(dims, (math.prod(dims),), (0,))

    def ids(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return all ids as an array of shape ``dims``. Raises UnsupportedError for more than ``MAX_DEVICES``."""
        check_device_count(math.prod(self.reshape_dims))
        flat = np.arange(math.prod(self.reshape_dims), dtype=np.int64).reshape(self.reshape_dims)
        return flat.transpose(self.transpose_perm).reshape(self.dims)

    def at(
        self, positions: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return only the ids at ``positions`` of the flattened array."""
        ids, left = np.zeros_like(positions), positions
        for d in reversed(self.transpose_perm):
            size = self.reshape_dims[d]
            ids += left % size * math.prod(self.reshape_dims[d + 1 :])
            left = left // size
        return ids

    def __str__(self) -> str:
        text = f"[{','.join(map(str, self.dims))}]<=[{','.join(map(str, self.reshape_dims))}]"
        if len(self.reshape_dims) > 1:  # XLA requires T(..) here, even for the identity
            text += f"T({','.join(map(str, self.transpose_perm))})"
        return text


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """The form ``mesh['x'=2,'y'=4] {'y'}``: groups run along ``axes`` (names, with an optional (pre-size, size)
    sub-axis). ``text``: as written.
    """

    mesh_axes: tuple[tuple[str, int], ...]
    axes: tuple[tuple[str, tuple[int, int] | None], ...]
    device_ids: tuple[int, ...] | None
    text: str

    @property
    def num_devices(self) -> int:
        return math.prod(size for _, size in self.mesh_axes)

    @property
    def group_size(self) -> int:
        sizes = dict(self.mesh_axes)
        return math.prod(sizes[name] if sub is None else sub[1] for name, sub in self.axes)


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Replica groups of a collective in their written form.

    Exactly one of ``groups``, ``iota``, ``mesh`` is set; ``groups == ()`` (and nothing else) means one group of all.
    """

    groups: tuple[tuple[int, ...], ...] = ()
    iota: IotaTile | None = None
    mesh: MeshGroups | None = None

    @property
    def is_all(self) -> bool:
        return not self.groups and self.iota is None and self.mesh is None

    def spanned(self) -> int | None:
        """Return n if the form alone says that the members are 0..n-1, each once, in groups of one size; else None."""
        if self.iota is not None:
            return math.prod(self.iota.dims)
        if self.mesh is not None and self.mesh.device_ids is None:
            return self.mesh.num_devices
        return None

    def expand(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Return all groups as explicit lists. ``count`` ids exist (for the empty form); padding ids (-1) are
        dropped.
        """
        if self.iota is not None:
            ids = self.iota.ids().reshape(self.iota.dims[0], -1)
            return tuple(tuple(int(i) for i in row) for row in ids)
        if self.mesh is not None:
            return _expand_mesh(self.mesh)
        if not self.groups:
            check_device_count(count)
            return (tuple(range(count)),)
        return tuple(tuple(i for i in group if i >= 0) for group in self.groups)

    def group_size(self, count: int) -> int:
        """Return the size of the first group."""
        if self.iota is not None:
            return math.prod(self.iota.dims[1:])
        if self.mesh is not None:
            return self.mesh.group_size
        if not self.groups:
            return count
        return sum(1 for i in self.groups[0] if i >= 0)


def _expand_mesh(mesh: MeshGroups) -> tuple[tuple[int, ...], ...]:
    """Return the groups along (sub-)axes: every mesh axis is split so that each chosen part is an axis of its own."""
    sizes: list[int] = []
    where: dict[tuple[str, tuple[int, int] | None], int] = {}
    for name, size in mesh.mesh_axes:
        parts = sorted(sub for axis, sub in mesh.axes if axis == name and sub is not None)
        if not parts:
            where[(name, None)] = len(sizes)
            sizes.append(size)
            continue
        done = 1
        for pre, part in parts:
            if pre > done:
                sizes.append(pre // done)
            where[(name, (pre, part))] = len(sizes)
            sizes.append(part)
            done = pre * part
        if size > done:
            sizes.append(size // done)
    total = math.prod(sizes)
    check_device_count(total)
    flat = np.arange(total) if mesh.device_ids is None else np.asarray(mesh.device_ids)
    ids = flat.reshape(sizes)
    chosen = [where[axis] for axis in mesh.axes]
    rest = [i for i in range(len(sizes)) if i not in chosen]
    rows = ids.transpose(rest + chosen).reshape(-1, math.prod(sizes[i] for i in chosen))
    return tuple(tuple(int(i) for i in row) for row in rows)
