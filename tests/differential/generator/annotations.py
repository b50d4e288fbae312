"""Random sharding annotations on a random mesh, in GSPMD's spelling, Shardy's, or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spmd.device import IotaTile
from spmd.hlo import Annotations, HloInstruction, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.sharding import HloSharding, SubgroupType, TileAssignment
from tests.differential.generator.writer import Value, Writer

SHARDING_KEY = "xla.sdy.sharding"


@dataclass(frozen=True)
class Spec:
    """Mesh axes per dimension, major to minor, and which dimensions may take more."""

    dims: tuple[tuple[str, ...], ...]
    open: tuple[bool, ...]


def random_spec(w: Writer, dims: Sequence[int], *, may_be_open: bool = False) -> Spec:
    """Each axis splits some dimension or none; now and then a dimension smaller than its shards."""
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
    """The tiled sharding of a spec, as an iota or as a list of devices."""
    names, sizes = list(w.mesh), tuple(w.mesh.values())
    used = [axis for axes in spec.dims for axis in axes]
    if not used:
        return HloSharding.replicated()
    rest = [name for name in names if name not in used]
    tile = [math.prod(w.mesh[a] for a in axes) for axes in spec.dims]
    kinds: tuple[SubgroupType, ...] = ()
    if rest:
        tile.append(math.prod(w.mesh[a] for a in rest))
        kinds = (SubgroupType.REPLICATED,)
    order = tuple(names.index(a) for a in (*used, *rest))
    iota = iota_tile(tuple(tile), sizes, order)
    if w.chance(0.15):
        ids = tuple(int(i) for i in iota.ids().ravel())
        return HloSharding.tiled(TileAssignment(IotaTile.of(tuple(tile)), ids), kinds)
    return HloSharding.tiled(TileAssignment(iota), kinds)


def iota_tile(tile: tuple[int, ...], sizes: tuple[int, ...], order: tuple[int, ...]) -> IotaTile:
    """Devices of a mesh with its axes in this order; one that changes nothing is left out, as the text demands."""
    return IotaTile(tile, sizes, order) if list(order) != sorted(order) else IotaTile.of(tile)


def shardy(w: Writer, spec: Spec, *, may_halve: bool = True) -> str:
    """``<@mesh, [{"x"}, {?}]>``; now and then half of an axis of four, ``{"x":(1)2}``."""
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
    return f"<@mesh, [{', '.join(dims)}]>"


def _part(w: Writer, axis: str) -> str:
    """The sub-axis suffix; the outer half comes first, so that it may stand anywhere."""
    halves = w.mesh[axis] == 4 and axis in w.free_axes and not w.style.gspmd and w.chance(0.15)
    return f":({w.choose((1, 2))})2" if halves else ""


def shardy_meshes(mesh: dict[str, int]) -> str:
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.items())
    return f"{{mesh = #sdy.mesh<[{axes}]>}}"


def annotate_parameter(w: Writer, hlo: HloInstruction) -> None:
    spec = random_spec(w, hlo.dims)
    if w.style.gspmd:
        hlo.sharding = gspmd(w, spec)
    if w.style.shardy:
        hlo.annotations = _with_shardy(hlo.annotations, f"#sdy.sharding{shardy(w, spec)}")


def constrain(w: Writer, value: Value, target: str = "Sharding") -> Value:
    """A custom call that demands a random sharding of ``value``; open dimensions may take more axes."""
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
    """A GSPMD sharding on the instruction itself, as older programs have them."""
    simple = value.hlo.opcode not in (Opcode.PARAMETER, Opcode.CUSTOM_CALL)
    if simple and not w.style.shardy and w.free_axes == list(w.mesh):
        value.hlo.sharding = gspmd(w, random_spec(w, value.dims))


def _with_shardy(annotations: Annotations, text: str) -> Annotations:
    return replace(
        annotations, frontend_attributes=(*annotations.frontend_attributes, (SHARDING_KEY, text))
    )
