"""LiteralProto: elements in the field of their type, in the order of the shape's layout."""

from __future__ import annotations

import numpy as np

from spmd.errors import HloParseError, UnsupportedError
from spmd.lazy_dataclass import dataclass
from spmd.limits import MAX_NESTING
from spmd.literal import Literal, NDArray
from spmd.proto.message import Field
from spmd.proto.schema.xla_data import LiteralProto
from spmd.proto.shape_proto import read_shape, write_shape
from spmd.proto.wire import pack_array, unpack_array
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape


@dataclass(frozen=True, slots=True)
class _ElementField:
    """The field of an element type; ``varints`` when it is a list of integers, else it holds the elements' bytes."""

    field: Field[bytes]
    varints: bool = False


_ELEMENT_FIELDS = {
    PrimitiveType.PRED: _ElementField(LiteralProto.preds, varints=True),
    PrimitiveType.S1: _ElementField(LiteralProto.s1s),
    PrimitiveType.S2: _ElementField(LiteralProto.s2s),
    PrimitiveType.S4: _ElementField(LiteralProto.s4s),
    PrimitiveType.S8: _ElementField(LiteralProto.s8s),
    PrimitiveType.S16: _ElementField(LiteralProto.s16s),
    PrimitiveType.S32: _ElementField(LiteralProto.s32s, varints=True),
    PrimitiveType.S64: _ElementField(LiteralProto.s64s, varints=True),
    PrimitiveType.U1: _ElementField(LiteralProto.u1s),
    PrimitiveType.U2: _ElementField(LiteralProto.u2s),
    PrimitiveType.U4: _ElementField(LiteralProto.u4s),
    PrimitiveType.U8: _ElementField(LiteralProto.u8s),
    PrimitiveType.U16: _ElementField(LiteralProto.u16s),
    PrimitiveType.U32: _ElementField(LiteralProto.u32s, varints=True),
    PrimitiveType.U64: _ElementField(LiteralProto.u64s, varints=True),
    PrimitiveType.F16: _ElementField(LiteralProto.f16s),
    PrimitiveType.BF16: _ElementField(LiteralProto.bf16s),
    PrimitiveType.F32: _ElementField(LiteralProto.f32s),
    PrimitiveType.F64: _ElementField(LiteralProto.f64s),
    PrimitiveType.C64: _ElementField(LiteralProto.c64s),
    PrimitiveType.C128: _ElementField(LiteralProto.c128s),
    PrimitiveType.F8E5M2: _ElementField(LiteralProto.f8e5m2s),
    PrimitiveType.F8E4M3: _ElementField(LiteralProto.f8e4m3s),
    PrimitiveType.F8E4M3FN: _ElementField(LiteralProto.f8e4m3fns),
    PrimitiveType.F8E4M3B11FNUZ: _ElementField(LiteralProto.f8e4m3b11fnuzs),
    PrimitiveType.F8E5M2FNUZ: _ElementField(LiteralProto.f8e5m2fnuzs),
    PrimitiveType.F8E4M3FNUZ: _ElementField(LiteralProto.f8e4m3fnuzs),
    PrimitiveType.F8E3M4: _ElementField(LiteralProto.f8e3m4s),
    PrimitiveType.F8E8M0FNU: _ElementField(LiteralProto.f8e8m0fnus),
    PrimitiveType.F4E2M1FN: _ElementField(LiteralProto.f4e2m1fns),
    PrimitiveType.F6E2M3FN: _ElementField(LiteralProto.f6e2m3fns),
    PrimitiveType.F6E3M2FN: _ElementField(LiteralProto.f6e3m2fns),
}


# ---- reading
def read_literal(proto: LiteralProto, depth: int = 0) -> Literal:
    """Return the literal. Memory is allocated only after the data is known to have as many elements as the shape."""
    shape = read_shape(proto.shape)
    if isinstance(shape, TupleShape):
        return _read_tuple(proto, shape, depth)
    if not isinstance(shape, ArrayShape):
        raise HloParseError(f"a literal cannot have the shape {shape}")
    if proto.dynamic_sizes not in ((), shape.dims):
        raise UnsupportedError(f"a literal of shape {shape} of which less is valid than the bound")
    flat = _read_elements(proto, shape)
    if flat.size != shape.num_elements:
        raise HloParseError(
            f"a literal of shape {shape} has {shape.num_elements} elements, found {flat.size}"
        )
    try:
        array = _from_layout(flat, shape)
    except ValueError as error:  # an empty array with sizes that NumPy cannot represent
        raise HloParseError(f"a literal cannot have the shape {shape}: {error}") from error
    array.setflags(write=False)
    return Literal(shape.without_layout(), array)


def _read_tuple(proto: LiteralProto, shape: TupleShape, depth: int) -> Literal:
    if depth > MAX_NESTING:
        raise HloParseError(f"literals are nested deeper than {MAX_NESTING}")
    parts = proto.tuple_literals
    if len(parts) != len(shape.elements):
        raise HloParseError(
            f"a literal of shape {shape} has {len(shape.elements)} parts, found {len(parts)}"
        )
    return Literal.tuple_of(tuple(read_literal(part, depth + 1) for part in parts))


def _read_elements(proto: LiteralProto, shape: ArrayShape) -> NDArray:
    """Return all elements in the order in which they are stored."""
    kind = shape.element_type
    storage = _ELEMENT_FIELDS[kind]
    octets = storage.field.__get__(proto, LiteralProto)
    if storage.varints:
        integers = unpack_array(octets)
        return integers != 0 if kind is PrimitiveType.PRED else integers.astype(kind.numpy)
    if kind.bits < 8:
        return _read_small(octets, shape)
    if len(octets) % kind.byte_size:
        raise HloParseError(f"{len(octets)} bytes hold no whole number of {kind} elements")
    return np.frombuffer(octets, kind.numpy)


def _read_small(octets: bytes, shape: ArrayShape) -> NDArray:
    """Return elements of fewer than 8 bits, which are stored one per byte, or packed with the first one in the lowest
    bits.

    Those of 6 bits are not packed.
    """
    kind = shape.element_type
    bits, count = kind.bits, shape.num_elements
    values = np.frombuffer(octets, np.uint8)
    if values.size != count and 8 % bits == 0 and values.size == -(-count * bits // 8):
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        values = (values[:, None] >> shifts).reshape(-1)[:count]
    values = values & np.uint8((1 << bits) - 1)
    if kind.is_floating:
        return values.view(kind.numpy)
    if kind.is_signed_integer:
        unused = np.uint8(8 - bits)
        return ((values << unused).view(np.int8) >> unused.view(np.int8)).astype(kind.numpy)
    return values.astype(kind.numpy)


def _from_layout(flat: NDArray, shape: ArrayShape) -> NDArray:
    """Return the elements, stored in the order of the layout, as an array of the logical shape."""
    layout = shape.layout
    if layout is None or layout.minor_to_major == tuple(range(shape.rank - 1, -1, -1)):
        return flat.reshape(shape.dims)
    major_to_minor = layout.minor_to_major[::-1]
    stored = flat.reshape([shape.dims[d] for d in major_to_minor])
    return np.ascontiguousarray(stored.transpose(np.argsort(major_to_minor)))


# ---- writing
def write_literal(literal: Literal, shape: Shape) -> LiteralProto:
    """Return ``literal`` as the proto of a constant of ``shape``, stored in the order of the shape's layout."""
    proto = LiteralProto()
    if isinstance(shape, TupleShape):
        proto.shape = write_shape(shape)
        proto.tuple_literals = [
            write_literal(part, element)
            for part, element in zip(literal.elements, shape.elements, strict=True)
        ]
        return proto
    if not isinstance(shape, ArrayShape):
        raise HloParseError(f"a literal cannot have the shape {shape}")
    if shape.layout is None:
        shape = shape.with_default_layout()
    proto.shape = write_shape(shape)
    if shape.dynamic:
        proto.dynamic_sizes = shape.dims
    assert shape.layout is not None
    array = literal.value().transpose(shape.layout.minor_to_major[::-1])
    storage = _ELEMENT_FIELDS[shape.element_type]
    storage.field.__set__(proto, _stored(array, shape.element_type, storage))
    return proto


def _stored(array: NDArray, kind: PrimitiveType, storage: _ElementField) -> bytes:
    flat = np.ascontiguousarray(array).reshape(-1)
    if storage.varints:
        return pack_array(flat)
    if kind.bits < 8 and not kind.is_floating:
        return bytes(flat.astype(np.int8).tobytes())
    return bytes(flat.tobytes())
