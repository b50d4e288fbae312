"""Named meshes and the shardings over them: Shardy's view of the distribution of a value."""

from __future__ import annotations

import math
from collections.abc import Mapping

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Mesh:
    """Grid of devices with named axes, major to minor.

    ``device_ids``: device at each position in row-major order, None for 0..n-1. A maximal mesh has no axes and one
    device id: that device holds everything.
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | None = None

    @property
    def num_devices(self) -> int:
        return math.prod(size for _, size in self.axes)

    @property
    def is_maximal(self) -> bool:
        return not self.axes and self.device_ids is not None and len(self.device_ids) == 1

    def axis_size(self, name: str) -> int | None:
        """Return the size of an axis, None if there is no such axis."""
        for axis, size in self.axes:
            if axis == name:
                return size
        return None

    def __str__(self) -> str:
        axes = ", ".join(f'"{name}"={size}' for name, size in self.axes)
        ids = (
            ""
            if self.device_ids is None
            else f", device_ids=[{', '.join(map(str, self.device_ids))}]"
        )
        return f"<[{axes}]{ids}>"


@dataclass(frozen=True, slots=True)
class AxisRef:
    """An axis, or the part ``(pre_size, size)`` of it.

    The axis splits into pre_size x size x rest, major to minor; the part is the middle one.
    """

    name: str
    sub: tuple[int, int] | None = None

    def __str__(self) -> str:
        part = "" if self.sub is None else f":({self.sub[0]}){self.sub[1]}"
        return f'"{self.name}"{part}'


@dataclass(frozen=True, slots=True)
class DimensionSharding:
    """Axes that divide one dimension, major to minor; an open dimension may be divided further.

    ``priority``: smaller values propagate first; None counts as 0 if the axes are not empty.
    """

    axes: tuple[AxisRef, ...] = ()
    is_closed: bool = True
    priority: int | None = None

    def __str__(self) -> str:
        parts = [*map(str, self.axes), *([] if self.is_closed else ["?"])]
        return f"{{{', '.join(parts)}}}{'' if self.priority is None else f'p{self.priority}'}"


@dataclass(frozen=True, slots=True)
class TensorSharding:
    """``<@mesh, [{"x"}, {?}], replicated={"y"}, unreduced={"z"}>``; ``mesh`` is a name or a mesh written in place."""

    mesh: str | Mesh
    dims: tuple[DimensionSharding, ...]
    replicated_axes: tuple[AxisRef, ...] = ()
    unreduced_axes: tuple[AxisRef, ...] = ()

    def mesh_in(self, meshes: Mapping[str, Mesh]) -> Mesh | None:
        """Return the mesh, which is one of ``meshes`` if it has a name; None if they do not contain it."""
        return self.mesh if isinstance(self.mesh, Mesh) else meshes.get(self.mesh)

    def __str__(self) -> str:
        mesh = f"mesh{self.mesh}" if isinstance(self.mesh, Mesh) else f"@{self.mesh}"
        text = f"{mesh}, [{', '.join(map(str, self.dims))}]"
        for word, axes in (
            ("replicated", self.replicated_axes),
            ("unreduced", self.unreduced_axes),
        ):
            if axes:
                text += f", {word}={{{', '.join(map(str, axes))}}}"
        return f"<{text}>"
