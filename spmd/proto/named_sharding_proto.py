"""NamedShardingProto: a sharding by mesh axes. Its text form is what HloSharding keeps, so it goes through that."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.errors import HloParseError
from spmd.proto.implied import Implied
from spmd.proto.mesh_proto import (
    axis_text,
    read_axis,
    read_mesh,
    write_axis,
    write_mesh,
)
from spmd.proto.metadata_proto import metadata_of_text, metadata_text
from spmd.proto.schema.xla_data import (
    AxisRefProto,
    DimensionShardingProto,
    NamedShardingProto,
)
from spmd.sharding import HloSharding, ShardingKind
from spmd.text.lexer import Scanner
from spmd.text.sharding import mesh_text as mesh_reader
from spmd.text.sharding.mesh_text import AxisText, MeshText
from spmd.text.sharding.sharding_text import parse_sharding

_KEYWORDS = ("replicated", "unreduced", "manual")


# ---- reading
def read_named_sharding(proto: NamedShardingProto, implied: Implied) -> HloSharding:
    text = _sharding_text(proto, implied)
    if proto.metadata:
        text += f" metadata={{{metadata_text(list(proto.metadata))}}}"
    return parse_sharding(f"{{{text}}}")


def _sharding_text(proto: NamedShardingProto, implied: Implied) -> str:
    if proto.mesh is not None and not proto.mesh.axes and len(proto.mesh.device_ids) == 1:
        return f"maximal_mesh[device_id={proto.mesh.device_ids[0]}]"
    mesh, written = read_mesh(proto.mesh, implied)
    lists = {
        "replicated": proto.replicated_axes,
        "unreduced": proto.unreduced_axes,
        "manual": proto.manual_axes,
    }
    named = {word: axes for word, axes in lists.items() if axes}
    if not proto.dim_shardings:
        short = _keyword(mesh, named)
        if short:
            return f"{written}, {short}"
    dims = ", ".join(_dimension_text(dim, mesh) for dim in proto.dim_shardings)
    tail = "".join(f", {word}={_axes_text(axes, mesh)}" for word, axes in named.items())
    return f"{written}, [{dims}]{tail}"


def _keyword(mesh: MeshText, named: dict[str, Sequence[AxisRefProto]]) -> str:
    """Return ``replicated`` if no axis is named, another keyword if all axes of the mesh are of its kind, else ""."""
    if not named:
        return "replicated"
    ((word, axes), *others) = named.items()
    all_axes = [(name, None) for name, _ in mesh.axes]
    if word == "replicated" or others or [read_axis(axis, mesh) for axis in axes] != all_axes:
        return ""
    return word


def _axes_text(axes: Sequence[AxisRefProto], mesh: MeshText) -> str:
    return f"{{{', '.join(axis_text(read_axis(axis, mesh)) for axis in axes)}}}"


def _dimension_text(proto: DimensionShardingProto, mesh: MeshText) -> str:
    parts = [axis_text(read_axis(axis, mesh)) for axis in proto.axes]
    if not proto.is_closed:
        parts.append("?")
    return f"{{{', '.join(parts)}}}"


# ---- writing
def write_named_sharding(sharding: HloSharding) -> NamedShardingProto:
    """Return the proto of the text in ``as_written``, which the text reader has accepted before."""
    if sharding.group:
        raise HloParseError(f"the proto cannot hold a shard group on the named sharding {sharding}")
    proto = NamedShardingProto()
    proto.metadata = metadata_of_text(sharding.metadata)
    if sharding.kind is ShardingKind.MAXIMAL:
        proto.mesh = write_mesh(MeshText((), (sharding.device,)))
        return proto
    scanner = Scanner.of(sharding.as_written)
    mesh = mesh_reader.read_mesh(scanner)
    proto.mesh = write_mesh(mesh, sharding.as_written)
    scanner.consume_if(",")
    if scanner.peek("["):
        proto.dim_shardings = _write_dimensions(scanner, mesh)
    while not scanner.at_end:
        scanner.consume_if(",")
        _write_axis_list(proto, scanner, mesh)
    return proto


def _write_dimensions(scanner: Scanner, mesh: MeshText) -> list[DimensionShardingProto]:
    dims: list[DimensionShardingProto] = []
    for _ in scanner.items("[", "]", needs_commas=False):
        proto = DimensionShardingProto()
        proto.is_closed = True
        axes: list[AxisText] = []
        for _ in scanner.items(needs_commas=False):
            if scanner.consume_if("?"):
                proto.is_closed = False
            else:
                axes.append(mesh_reader.read_axis(scanner, mesh))
        proto.axes = [write_axis(axis, mesh) for axis in axes]
        dims.append(proto)
    return dims


def _write_axis_list(proto: NamedShardingProto, scanner: Scanner, mesh: MeshText) -> None:
    """Read ``manual={'x'}``, or ``manual`` alone for all axes (``replicated`` alone for none), into the proto."""
    word = next((word for word in _KEYWORDS if scanner.consume_if(word)), None)
    if word is None:
        scanner.fail(f"expected axes, found {scanner.found()}")
    axes: tuple[AxisText, ...]
    if scanner.consume_if("="):
        axes = mesh_reader.read_axes(scanner, mesh)
    else:
        axes = () if word == "replicated" else tuple((name, None) for name, _ in mesh.axes)
    written = [write_axis(axis, mesh) for axis in axes]
    if word == "replicated":
        proto.replicated_axes = written
    elif word == "unreduced":
        proto.unreduced_axes = written
    else:
        proto.manual_axes = written
