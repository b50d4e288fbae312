"""Reader of sharding annotations, GSPMD's and Shardy's, as constraints over the module's device axes.

If an instruction has both, Shardy's wins: an open Shardy constraint is written as ``sharding={replicated}`` next to
``[{?}, {?}]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from partitioner.devices.axes import Axes, DeviceAxes, DimAxes, common_axes
from partitioner.devices.axis_precedence import by_precedence, shardings_by_precedence
from spmd.errors import ShardingError, UnsupportedError
from spmd.hlo import Annotations, HloInstruction, HloModule, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.mesh import AxisRef, Mesh, TensorSharding
from spmd.shape import ArrayShape, Shape, leaves
from spmd.sharding import HloSharding, ShardingKind, SubgroupType
from spmd.text.sharding.module_meshes import meshes_of
from spmd.text.sharding.shardy_text import parse_manual_axes, parse_shardings

SDY_SHARDING = "xla.sdy.sharding"
SDY_MESHES = "xla.sdy.meshes"
SDY_IN_SHARDINGS = "xla.sdy.in_shardings"
SDY_OUT_SHARDINGS = "xla.sdy.out_shardings"
SDY_MANUAL_AXES = "xla.sdy.manual_axes"

_UNSPECIFIED_DIMS = re.compile(r"unspecified_dims=\[([\d,\s]*)\]")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Constraint of an annotation on one value: the axes of each dimension. An open dimension may take more axes.

    ``manual``: axes that are manual at the value (GSPMD subgroup form).
    """

    dims: DimAxes
    open: tuple[bool, ...]
    manual: Axes = ()
    #: The sharding itself if the module's axes cannot express it; the other fields then have no meaning
    #: (inexpressible_shardings.py).
    inexpressible: HloSharding | None = None
    #: User priority of each dimension (smaller first); empty if all are 0.
    priorities: tuple[int, ...] = ()
    #: Axes that must stay replicated; no open dimension takes them.
    excluded: Axes = ()
    #: Axes over which the value is written as partial sums. They bind only parameters and outputs of the program.
    partial: Axes = ()

    @staticmethod
    def replicated(rank: int) -> Constraint:
        return Constraint(((),) * rank, (False,) * rank)


class AnnotationReader:
    """Reader of one module's annotations, for the devices of one replica. Build with
    ``AnnotationReader.for_module``.
    """

    def __init__(self, axes: DeviceAxes, meshes: dict[str, Mesh]) -> None:
        self.axes = axes
        self.meshes = meshes

    @staticmethod
    def for_module(module: HloModule, num_devices: int) -> AnnotationReader:
        meshes = by_precedence(module, meshes_of(module))
        refs = list(_axis_refs(module, meshes))
        mesh_refs = [(mesh, [r for m, r in refs if m == mesh]) for mesh in meshes.values()]
        axes = common_axes(num_devices, shardings_by_precedence(module), mesh_refs)
        return AnnotationReader(replace(axes, replicas=module.replica_count), meshes)

    # ---- values
    def of_instruction(self, instruction: HloInstruction) -> tuple[Constraint | None, ...]:
        """Return the constraint of each result leaf from the annotation on the instruction itself; None without one."""
        shapes = [shape for _, shape in leaves(instruction.shape)]
        if instruction.opcode is Opcode.OUTFEED:  # it annotates the operand (ops/feed.py)
            return (None,) * len(shapes)
        shardy = instruction.annotations.frontend(SDY_SHARDING)
        if shardy is not None and not shapes:
            return ()  # JAX gives a call without results one sharding, which has no value
        if shardy is not None:
            found = self.shardy_shardings(instruction)
            if len(found) == 1 and self.on_one_device(found[0]) is not None:
                found = tuple(found) * len(shapes)
            if len(found) != len(shapes):
                raise ShardingError(
                    f"{instruction.name}: {len(found)} shardings for {len(shapes)} values in {shardy}"
                )
            return tuple(self.of_shardy(s, shape) for s, shape in zip(found, shapes, strict=True))
        if instruction.sharding is None:
            return (None,) * len(shapes)
        unspecified = unspecified_dims(instruction)
        parts = instruction.sharding.leaf_shardings(instruction.shape)
        return tuple(
            self.of_gspmd(s, shape, unspecified) for s, shape in zip(parts, shapes, strict=True)
        )

    def groups_of(self, instruction: HloInstruction) -> tuple[str, ...]:
        """Return the GSPMD sharding group of each result leaf (``shard_as 1``); empty if it has none."""
        count = sum(1 for _ in leaves(instruction.shape))
        is_shardy = instruction.annotations.frontend(SDY_SHARDING) is not None
        if instruction.sharding is None or is_shardy or instruction.opcode is Opcode.OUTFEED:
            return ("",) * count
        return tuple(s.group for s in instruction.sharding.leaf_shardings(instruction.shape))

    def shardy_shardings(self, instruction: HloInstruction) -> tuple[TensorSharding, ...]:
        """Return the shardings of Shardy's attribute on an instruction, one per value; empty without the attribute."""
        text = instruction.annotations.frontend(SDY_SHARDING)
        return () if text is None else parse_shardings(text)

    def of_shardy(self, sharding: TensorSharding, shape: Shape) -> Constraint | None:
        """Return the constraint of a Shardy sharding, or None if the value is no array.

        Unreduced axes do not change the global value, so they constrain no value inside the program. On one device the
        mesh has no meaning, and the module need not define it.
        """
        if not isinstance(shape, ArrayShape):
            return None
        if self.axes.num_devices == 1 or self.on_one_device(sharding) is not None:
            return Constraint.replicated(shape.rank)
        mesh = self.mesh(sharding)
        if len(sharding.dims) != shape.rank:
            raise ShardingError(f"a sharding of {len(sharding.dims)} dimensions stands on {shape}")
        try:
            dims = _dims_over(self.axes, mesh, sharding)
            excluded = _axes_over(self.axes, mesh, sharding.replicated_axes)
            partial = _axes_over(self.axes, mesh, sharding.unreduced_axes)
        except ShardingError:
            refs = [ref for d in sharding.dims for ref in d.axes] + list(sharding.unreduced_axes)
            own = common_axes(self.axes.num_devices, [], [(mesh, refs)])
            partial = _axes_over(own, mesh, sharding.unreduced_axes)
            tiled = own.sharding(_dims_over(own, mesh, sharding), partial=partial)
            return _inexpressible(tiled, shape.rank)
        priorities = tuple(d.priority or 0 for d in sharding.dims)
        return Constraint(
            dims,
            tuple(not d.is_closed for d in sharding.dims),
            priorities=priorities if any(priorities) else (),
            excluded=excluded,
            partial=partial,
        )

    def of_gspmd(
        self, sharding: HloSharding, shape: Shape, unspecified: Axes = ()
    ) -> Constraint | None:
        """Return the constraint of a GSPMD sharding, or None if it constrains nothing (unknown, or the value is no
        array).
        """
        if not isinstance(shape, ArrayShape) or sharding.kind is ShardingKind.UNKNOWN:
            return None
        is_open = tuple(d in unspecified for d in range(shape.rank))
        if sharding.kind is ShardingKind.MANUAL:
            return Constraint(((),) * shape.rank, is_open, self.axes.all)
        if sharding.kind is not ShardingKind.TILED:
            unsharded = Constraint(((),) * shape.rank, is_open)
            is_partial = sharding.kind is ShardingKind.UNREDUCED
            return replace(unsharded, partial=self.axes.all if is_partial else ())
        if sharding.num_devices != self.axes.num_devices:
            raise ShardingError(
                f"sharding {sharding} names {sharding.num_devices} devices, the module runs on {self.axes.num_devices}"
            )
        try:
            dims, groups = self.axes.axes_of_sharding(sharding, shape.rank)
        except ShardingError:
            if SubgroupType.MANUAL in sharding.subgroup_types:
                raise
            return _inexpressible(sharding, shape.rank)
        manual = groups.get(SubgroupType.MANUAL, ())
        partial = groups.get(SubgroupType.UNREDUCED, ())
        return Constraint(dims, is_open, manual, partial=partial)

    # ---- meshes
    def mesh(self, sharding: TensorSharding) -> Mesh:
        mesh = sharding.mesh_in(self.meshes)
        if mesh is None:
            raise ShardingError(f"no mesh named {sharding.mesh!r} in {SDY_MESHES}")
        if mesh.device_ids is not None and tuple(mesh.device_ids) != tuple(
            range(len(mesh.device_ids))
        ):
            raise UnsupportedError(
                f"mesh {mesh.name}: a device order other than 0..n-1 is not supported yet"
            )
        return mesh

    def on_one_device(self, sharding: TensorSharding) -> int | None:
        """Return the device of a sharding over a single-device mesh (``maximal_mesh_0``); None for any other
        sharding.
        """
        mesh = sharding.mesh_in(self.meshes)
        if mesh is None or not mesh.is_maximal or mesh.device_ids is None:
            return None
        return mesh.device_ids[0]

    def manual_axes(self, text: str, mesh: Mesh) -> Axes:
        names = parse_manual_axes(text)
        return tuple(
            sorted(a for name in names for a in self.axes.axes_of_ref(mesh, AxisRef(name)))
        )


def _dims_over(axes: DeviceAxes, mesh: Mesh, sharding: TensorSharding) -> DimAxes:
    return tuple(_axes_over(axes, mesh, d.axes) for d in sharding.dims)


def _axes_over(axes: DeviceAxes, mesh: Mesh, refs: Sequence[AxisRef]) -> Axes:
    return tuple(a for ref in refs for a in axes.axes_of_ref(mesh, ref))


def _inexpressible(sharding: HloSharding, rank: int) -> Constraint:
    return Constraint(((),) * rank, (True,) * rank, inexpressible=sharding)


def unspecified_dims(instruction: HloInstruction) -> Axes:
    """Return the dimensions that ``backend_config="unspecified_dims=[..]"`` leaves open."""
    match = _UNSPECIFIED_DIMS.search(instruction.annotations.backend_config)
    return tuple(int(d) for d in match.group(1).split(",") if d.strip()) if match else ()


def without_shardings(annotations: Annotations) -> Annotations:
    """Return the annotations of a per-device instruction: all except Shardy's sharding of the global value."""
    attributes = tuple(item for item in annotations.frontend_attributes if item[0] != SDY_SHARDING)
    return replace(annotations, frontend_attributes=attributes)


#: Custom calls that are an identity with an annotated sharding.
CONSTRAINT_TARGETS = ("Sharding", "xla.sdy.FuncResultSharding", "annotate_device_placement")


def _axis_refs(module: HloModule, meshes: dict[str, Mesh]) -> Iterator[tuple[Mesh, AxisRef]]:
    """Yield the sub-axis references in the module's Shardy text (they cut an axis)."""
    for instruction in module.all_instructions():
        for key, value in instruction.annotations.frontend_attributes:
            if key not in (SDY_SHARDING, SDY_IN_SHARDINGS, SDY_OUT_SHARDINGS) or ":(" not in value:
                continue
            for sharding in parse_shardings(value):
                mesh = sharding.mesh_in(meshes)
                if mesh is not None:
                    refs = [ref for dim in sharding.dims for ref in dim.axes]
                    refs += [*sharding.replicated_axes, *sharding.unreduced_axes]
                    yield from ((mesh, ref) for ref in refs if ref.sub is not None)
