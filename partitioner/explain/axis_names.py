"""Names of device axes: from the module's mesh, else number and size."""

from __future__ import annotations

from collections.abc import Iterable

from partitioner.annotations.reader import AnnotationReader
from partitioner.devices.axes import Axes, DeviceAxes, DimAxes
from partitioner.partition.shard_state import ShardState
from spmd.errors import ShardingError
from spmd.mesh import Mesh
from spmd.shape import ArrayShape


class AxisNames:
    """Names of one module's axes. A mesh axis that was cut into several is numbered: ``dp.0``, ``dp.1``."""

    def __init__(self, reader: AnnotationReader) -> None:
        self._axes: DeviceAxes = reader.axes
        self._names = [f"axis{a}[{size}]" for a, size in enumerate(self._axes.sizes)]
        #: Axes that are entire axes of a mesh, so that JAX has a name for them.
        self._full: set[int] = set()
        for mesh in reader.meshes.values():
            for name, parts in _parts(self._axes, mesh).items():
                for i, axis in enumerate(parts):
                    self._names[axis] = name if len(parts) == 1 else f"{name}.{i}"
                if len(parts) == 1:
                    self._full.update(parts)

    def __getitem__(self, axis: int) -> str:
        return self._names[axis]

    def join(self, axes: Iterable[int]) -> str:
        return ", ".join(self._names[a] for a in axes)

    def partition_spec(self, dims: DimAxes) -> str:
        """Return ``P('data', None)`` in JAX's notation; "" if a mesh has no name for an axis."""
        if not self._full or not all(a in self._full for dim_axes in dims for a in dim_axes):
            return ""
        names = [tuple(self._names[a] for a in dim_axes) for dim_axes in dims]
        parts = [
            None if not dim_axes else dim_axes[0] if len(dim_axes) == 1 else dim_axes
            for dim_axes in names
        ]
        return f"P({', '.join(map(repr, parts))})"

    def array(self, shape: ArrayShape, state: ShardState) -> str:
        """Return an array's sharding in JAX's notation. Braces hold a reduction that is still pending.

        f32[8@data,16,32@(data,model)]    f32[8,16]{sum over model}
        """
        sizes = [
            f"{n}{self._at(dim_axes)}" for n, dim_axes in zip(shape.dims, state.dims, strict=True)
        ]
        text = f"{shape.element_type.value}[{','.join(sizes)}]"
        if not state.partial or state.reduction is None:
            return text
        over = ",".join(map(self._plain, state.partial))
        return f"{text}{{{state.reduction.value} over {over}}}"

    def _at(self, axes: Axes) -> str:
        names = ",".join(map(self._plain, axes))
        return "" if not axes else f"@{names}" if len(axes) == 1 else f"@({names})"

    def _plain(self, axis: int) -> str:
        return self._names[axis].partition("[")[0]

    def sizes(self) -> dict[str, int]:
        return dict(zip(self._names, self._axes.sizes, strict=True))


def _parts(axes: DeviceAxes, mesh: Mesh) -> dict[str, Axes]:
    """Return the device axes of each axis of ``mesh``; empty if they do not nest with the rest of the module."""
    try:
        return axes.axes_of_mesh(mesh)
    except ShardingError:
        return {}
