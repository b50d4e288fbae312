"""Random sharding annotations on a random mesh, in GSPMD's spelling, Shardy's, or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spmd.device import IotaTile
from spmd.hlo import Annotations, HloInstruction, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding, SubgroupType, TileAssignment
from tests.differential.factors import arrays
from tests.differential.generator.writer import Order, Value, Writer

SHARDING_KEY = "xla.sdy.sharding"


@dataclass(frozen=True)
class Spec:
    """Mesh axes of each dimension, major to minor, and whether the dimension may take more axes."""

    dims: tuple[tuple[str, ...], ...]
    open: tuple[bool, ...]


def random_spec(w: Writer, dims: Sequence[int], *, may_be_open: bool = False) -> Spec:
    """Return a spec in which each axis splits at most one dimension, which is rarely smaller than its shards."""
    chosen: list[list[str]] = [[] for _ in dims]
    for axis in w.shuffled(w.free_axes):
        if not dims or w.chance(0.3):
            continue
        d = w.integer(0, len(dims) - 1)
        shards = w.mesh[axis] * math.prod(w.mesh[a] for a in chosen[d])
        if dims[d] < shards and not w.chance(0.2):
            continue
        chosen[d].append(axis)
    is_open = tuple(may_be_open and w.chance(0.4) for _ in dims)
    return Spec(tuple(map(tuple, chosen)), is_open)


def gspmd(w: Writer, spec: Spec) -> HloSharding:
    """Return the tiled sharding of a spec, with an iota or with a list of devices."""
    names, sizes = list(w.mesh), tuple(w.mesh.values())
    used = [axis for axes in spec.dims for axis in axes]
    manual = w.manual_axes
    if len(manual) == len(names):
        return HloSharding.manual()
    if not used and not manual:
        return HloSharding.replicated()
    rest = [name for name in names if name not in used and name not in manual]
    tile = [math.prod(w.mesh[a] for a in axes) for axes in spec.dims]
    kinds: list[SubgroupType] = []
    for axes, kind in ((manual, SubgroupType.MANUAL), (rest, SubgroupType.REPLICATED)):
        if axes:
            tile.append(math.prod(w.mesh[a] for a in axes))
            kinds.append(kind)
    order = tuple(names.index(a) for a in (*used, *manual, *rest))
    return tiled(w, iota_tile(tuple(tile), sizes, order), kinds)


def tiled(w: Writer, iota: IotaTile, kinds: Sequence[SubgroupType]) -> HloSharding:
    """Return the sharding with the iota, or with a list of devices, which a mesh with its own device order needs."""
    if w.order is None and w.chance(0.85):
        return HloSharding.tiled(TileAssignment(iota), tuple(kinds))
    ids = tuple(int(i) if w.order is None else w.order[int(i)] for i in iota.ids().ravel())
    return HloSharding.tiled(TileAssignment(IotaTile.of(iota.dims), ids), tuple(kinds))


def iota_tile(tile: tuple[int, ...], sizes: tuple[int, ...], order: tuple[int, ...]) -> IotaTile:
    """Return the tile of a mesh with its axes in ``order``.

    An order that changes nothing is left out, as the text demands.
    """
    return IotaTile(tile, sizes, order) if list(order) != sorted(order) else IotaTile.of(tile)


def shardy(w: Writer, spec: Spec, *, may_halve: bool = True) -> str:
    """Return ``<@mesh, [{"x"}, {?}]>``; now and then a dimension has half of an axis of four, ``{"x":(1)2}``."""
    dims = [
        "{"
        + ", ".join(
            [
                *(f'"{axis}"{_part(w, axis) if may_halve else ""}' for axis in axes),
                *(["?"] if is_open else []),
            ]
        )
        + "}"
        for axes, is_open in zip(spec.dims, spec.open, strict=True)
    ]
    return f"<@{w.mesh_name}, [{', '.join(dims)}]>"


def _part(w: Writer, axis: str) -> str:
    """Return the suffix of a sub-axis, or none; the outer half comes first, so that it may stand anywhere."""
    halves = w.mesh[axis] == 4 and axis in w.free_axes and not w.style.gspmd and w.chance(0.15)
    return f":({w.choose((1, 2))})2" if halves else ""


def shardy_meshes(w: Writer) -> str:
    meshes = [_mesh_text(w.mesh_name, w.mesh, w.order)]
    if w.other is not None:
        meshes.append(_mesh_text("other", w.other.axes, w.other.order))
    return f"{{{', '.join(meshes)}}}"


def _mesh_text(name: str, mesh: dict[str, int], order: Order) -> str:
    axes = ", ".join(f'"{axis}"={size}' for axis, size in mesh.items())
    ids = f", device_ids=[{', '.join(map(str, order))}]" if order is not None else ""
    return f"{name} = #sdy.mesh<[{axes}]{ids}>"


def _seen(w: Writer) -> Writer:
    """Return the writer, or now and then one that writes its shardings over the other mesh."""
    if w.other is None or w.manual_axes or w.chance(0.6):
        return w
    mesh = w.other.axes
    return replace(w, mesh=mesh, order=w.other.order, mesh_name="other", free_axes=list(mesh))


def annotate_parameter(w: Writer, hlo: HloInstruction) -> None:
    w = _seen(w)
    spec = random_spec(w, hlo.dims)
    if w.style.gspmd:
        hlo.sharding = gspmd(w, spec)
    if w.style.shardy:
        hlo.annotations = _with_shardy(hlo.annotations, f"#sdy.sharding{shardy(w, spec)}")


def annotate_outputs(w: Writer, root: HloInstruction, outputs: Sequence[Value]) -> None:
    """Set a GSPMD sharding on the root: one for each element where the root is a tuple."""
    shardings = [gspmd(view, random_spec(view, v.dims)) for v in outputs for view in (_seen(w),)]
    is_tuple = root.opcode is Opcode.TUPLE
    root.sharding = HloSharding.tuple_of(tuple(shardings)) if is_tuple else shardings[0]


def constrain(w: Writer, value: Value, target: str = "Sharding", spec: Spec | None = None) -> Value:
    """Return ``value`` behind a custom call that demands ``spec``, or a random sharding.

    Open dimensions may take more axes.
    """
    if spec is None:
        w = _seen(w)
        spec = random_spec(w, value.dims, may_be_open=target == "Sharding")
    annotations = Annotations()
    sharding = None
    if w.style.gspmd:
        sharding = gspmd(w, spec)
        if any(spec.open) and not w.style.shardy:
            dims = ",".join(str(d) for d, is_open in enumerate(spec.open) if is_open)
            annotations = Annotations(backend_config=f"unspecified_dims=[{dims}]")
    if w.style.shardy:
        annotations = _with_shardy(annotations, f"#sdy.sharding_per_value<[{shardy(w, spec)}]>")
    hlo = w.builder.create(
        Opcode.CUSTOM_CALL,
        (value.hlo,),
        CustomCallAttrs(target, has_side_effect=target != "Sharding"),
        shape=value.hlo.array_shape,
    )
    hlo.sharding = sharding
    hlo.annotations = annotations
    return replace(value, hlo=hlo)


def annotate_in_place(w: Writer, value: Value) -> None:
    """Set a GSPMD sharding on the instruction itself, as older programs do."""
    simple = value.hlo.opcode not in (Opcode.PARAMETER, Opcode.CUSTOM_CALL)
    if simple and not w.style.shardy and not w.manual_axes:
        value.hlo.sharding = gspmd(w, random_spec(w, value.dims))


def demand_in_place(w: Writer, hlo: HloInstruction, leaf: int, spec: Spec) -> None:
    """Set a sharding on the instruction itself, for one array of its result; the other arrays get no axes."""
    parts = arrays(hlo.shape)
    is_array = isinstance(hlo.shape, ArrayShape)
    if w.style.gspmd:
        whole = [gspmd(w, Spec(((),) * a.rank, ())) for a in parts]
        whole[leaf] = gspmd(w, spec)
        hlo.sharding = whole[0] if is_array else HloSharding.tuple_of(tuple(whole))
    if w.style.shardy:
        free = [shardy(w, Spec(((),) * a.rank, (True,) * a.rank)) for a in parts]
        free[leaf] = shardy(w, spec)
        text = f"#sdy.sharding_per_value<[{', '.join(free)}]>"
        hlo.annotations = _with_shardy(hlo.annotations, text)


def _with_shardy(annotations: Annotations, text: str) -> Annotations:
    return replace(
        annotations, frontend_attributes=(*annotations.frontend_attributes, (SHARDING_KEY, text))
    )
