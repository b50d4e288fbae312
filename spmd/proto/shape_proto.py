"""ShapeProto and LayoutProto: shapes with dynamic sizes, tiles, memory spaces."""

from __future__ import annotations

import re

from spmd.errors import HloParseError, ShapeError, UnsupportedError
from spmd.limits import MAX_NESTING, MAX_RANK
from spmd.proto.enums import BUFFER, OPAQUE, PRIMITIVE_TYPES, TOKEN, TUPLE
from spmd.proto.schema.xla_data import LayoutProto, ShapeProto, SplitConfigProto, TileProto
from spmd.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    PrimitiveType,
    Shape,
    TokenShape,
    TupleShape,
)

#: A tile dimension that joins the next one, ``*`` in text.
_COMBINED = -(1 << 63)
_NAMES = {kind.value: kind for kind in PrimitiveType}


# ---- reading
def read_shape(proto: ShapeProto | None, depth: int = 0) -> Shape:
    """Return the shape. Raises HloParseError if it is absent or malformed."""
    if proto is None:
        raise HloParseError("a shape is missing")
    if depth > MAX_NESTING:
        raise HloParseError(f"shapes are nested deeper than {MAX_NESTING}")
    kind = proto.element_type
    if kind == TUPLE:
        elements = tuple(read_shape(part, depth + 1) for part in proto.tuple_shapes)
        try:
            return TupleShape(elements)
        except ShapeError as error:
            raise HloParseError(str(error)) from error
    if kind == TOKEN:
        return TokenShape()
    if kind == OPAQUE:
        return OpaqueShape()
    if kind == BUFFER:
        return _read_buffer(proto, depth)
    return _read_array(proto)


def _read_buffer(proto: ShapeProto, depth: int) -> BufferShape:
    parts = proto.tuple_shapes
    array = read_shape(parts[0], depth + 1) if len(parts) == 1 else None
    if not isinstance(array, ArrayShape):
        raise HloParseError("a buffer holds exactly one array")
    return BufferShape(array)


def _read_array(proto: ShapeProto) -> ArrayShape:
    element_type = PRIMITIVE_TYPES.value(proto.element_type)
    dims, dynamic = proto.dimensions, proto.is_dynamic_dimension
    if len(dims) > MAX_RANK:
        raise HloParseError(f"an array has at most {MAX_RANK} dimensions, found {len(dims)}")
    if dynamic and len(dynamic) != len(dims):
        raise HloParseError(f"{len(dynamic)} dynamic flags for {len(dims)} dimensions")
    flags = dynamic or (False,) * len(dims)
    if any(n < 0 and not (n == UNBOUNDED and on) for n, on in zip(dims, flags, strict=True)):
        raise HloParseError(f"negative size in the shape {element_type}{list(dims)}")
    layout = _read_layout(proto.layout, len(dims))
    return ArrayShape(element_type, dims, layout, dynamic if any(dynamic) else ())


def _read_layout(proto: LayoutProto | None, rank: int) -> Layout | None:
    if proto is None:
        return None
    order = proto.minor_to_major
    suffix = _suffix(proto)
    if not rank and not order and not suffix:
        return None
    if sorted(order) != list(range(rank)):
        raise HloParseError(f"layout {list(order)} is not a permutation of {rank} dimensions")
    return Layout(order, suffix)


def _suffix(proto: LayoutProto) -> str:
    """Return the text of a layout behind its colon, in XLA's order."""
    if any(proto.dim_level_types) or proto.physical_shape is not None:
        raise UnsupportedError("sparse layouts are not supported")
    parts: list[str] = []
    if proto.tiles:
        parts.append("T" + "".join(f"({_tile_text(tile.dimensions)})" for tile in proto.tiles))
    if proto.tail_padding_alignment_in_elements not in (0, 1):
        parts.append(f"L({proto.tail_padding_alignment_in_elements})")
    if proto.index_primitive_type:
        parts.append(f"#({_integer_type(proto.index_primitive_type)})")
    if proto.pointer_primitive_type:
        parts.append(f"*({_integer_type(proto.pointer_primitive_type)})")
    if proto.element_size_in_bits:
        parts.append(f"E({proto.element_size_in_bits})")
    if proto.memory_space:
        parts.append(f"S({proto.memory_space})")
    if proto.split_configs:
        parts.append("SC" + "".join(map(_split_text, proto.split_configs)))
    if proto.dynamic_shape_metadata_prefix_bytes:
        parts.append(f"M({proto.dynamic_shape_metadata_prefix_bytes})")
    return "".join(parts)


def _integer_type(number: int) -> PrimitiveType:
    kind = PRIMITIVE_TYPES.value(number)
    if not kind.is_integer:
        raise HloParseError(f"an index or pointer type of a layout cannot be {kind}")
    return kind


def _tile_text(dims: tuple[int, ...]) -> str:
    if any(size < 0 and size != _COMBINED for size in dims):
        raise HloParseError("a tile of a layout has a negative size")
    return ",".join("*" if size == _COMBINED else str(size) for size in dims)


def _split_text(proto: SplitConfigProto) -> str:
    return f"({proto.dimension}:{','.join(map(str, proto.split_indices))})"


# ---- writing
def write_shape(shape: Shape) -> ShapeProto:
    """Return the shape's proto, always with a layout: no layout means the row-major one to XLA."""
    proto = ShapeProto()
    if isinstance(shape, TupleShape):
        proto.element_type = TUPLE
        proto.tuple_shapes = [write_shape(element) for element in shape.elements]
    elif isinstance(shape, ArrayShape):
        proto.element_type = PRIMITIVE_TYPES.number(shape.element_type)
        proto.dimensions = shape.dims
        proto.is_dynamic_dimension = shape.dynamic or (False,) * shape.rank
        proto.layout = write_layout(shape.layout or Layout.default(shape.rank))
    elif isinstance(shape, BufferShape):
        proto.element_type = BUFFER
        proto.tuple_shapes = [write_shape(shape.array)]
    else:
        proto.element_type = TOKEN if isinstance(shape, TokenShape) else OPAQUE
    return proto


_PART = re.compile(r"(SC|[TLESM#*])((?:\([^()]*\))+)")
_GROUP = re.compile(r"\(([^()]*)\)")


def write_layout(layout: Layout) -> LayoutProto:
    proto = LayoutProto()
    proto.minor_to_major = layout.minor_to_major
    proto.tail_padding_alignment_in_elements = 1
    pos = 0
    for found in _PART.finditer(layout.suffix):
        if found.start() != pos:
            break
        pos = found.end()
        try:
            _write_part(proto, found[1], _GROUP.findall(found[2]))
        except (KeyError, ValueError) as error:
            raise HloParseError(f"the proto cannot hold the layout {layout}") from error
    if pos != len(layout.suffix):
        raise HloParseError(f"the proto cannot hold the layout {layout}")
    return proto


def _write_part(proto: LayoutProto, name: str, groups: list[str]) -> None:
    if name == "T":
        _write_tiles(proto, groups)
        return
    if name == "SC":
        _write_splits(proto, groups)
        return
    (text,) = groups
    number = PRIMITIVE_TYPES.number(_NAMES[text]) if name in "#*" else int(text)
    setattr(proto, _NUMBERS[name].name, number)


#: Fields of one number by the names of their parts.
_NUMBERS = {
    "L": LayoutProto.tail_padding_alignment_in_elements,
    "#": LayoutProto.index_primitive_type,
    "*": LayoutProto.pointer_primitive_type,
    "E": LayoutProto.element_size_in_bits,
    "S": LayoutProto.memory_space,
    "M": LayoutProto.dynamic_shape_metadata_prefix_bytes,
}


def _write_tiles(proto: LayoutProto, groups: list[str]) -> None:
    tiles: list[TileProto] = []
    for group in groups:
        tile = TileProto()
        sizes = group.split(",") if group else []
        tile.dimensions = tuple(_COMBINED if size == "*" else int(size) for size in sizes)
        tiles.append(tile)
    proto.tiles = tiles


def _write_splits(proto: LayoutProto, groups: list[str]) -> None:
    configs: list[SplitConfigProto] = []
    for group in groups:
        dimension, _, indices = group.partition(":")
        config = SplitConfigProto()
        config.dimension = int(dimension)
        config.split_indices = tuple(map(int, indices.split(","))) if indices else ()
        configs.append(config)
    proto.split_configs = configs
