"""Types of HLO values: element types, layouts, and array, tuple, token and opaque shapes.

All are frozen and hashable, so they are shared freely between instructions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import field
from enum import Enum
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from spmd.errors import PackageError, ShapeError, UnsupportedError
from spmd.lazy_dataclass import dataclass

#: The newest of the element types in use: ml_dtypes 0.6 has it.
if not hasattr(ml_dtypes, "uint1"):
    raise PackageError(
        f'ml_dtypes >= 0.6 is needed, found {ml_dtypes.__version__} without uint1: pip install "ml_dtypes>=0.6"'
    )
from spmd.limits import MAX_LEAVES, MAX_NESTING

#: Size of an unbounded dynamic dimension (``?``), as in XLA. Such values can be neither evaluated nor partitioned.
UNBOUNDED = -(2**63)
#: The memory space ``S(5)`` of a layout: the host's memory, as XLA numbers it.
HOST_MEMORY = 5


class PrimitiveType(Enum):
    """Element types; the value is the name in HLO text."""

    #: Hash by identity, consistent with the comparison of members: Enum's own hash, that of the name, is a slow Python
    #: function.
    __hash__ = object.__hash__

    PRED = "pred"
    S1 = "s1"
    S2 = "s2"
    S4 = "s4"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    U1 = "u1"
    U2 = "u2"
    U4 = "u4"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    C64 = "c64"
    C128 = "c128"
    F8E5M2 = "f8e5m2"
    F8E4M3 = "f8e4m3"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3B11FNUZ = "f8e4m3b11fnuz"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E3M4 = "f8e3m4"
    F8E8M0FNU = "f8e8m0fnu"
    F4E2M1FN = "f4e2m1fn"
    F6E2M3FN = "f6e2m3fn"
    F6E3M2FN = "f6e3m2fn"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy (or ml_dtypes) type; sub-byte types take one byte per element in memory."""
        return _NUMPY[self]

    @property
    def byte_size(self) -> int:
        """Bytes per element as stored here (sub-byte types unpacked, as XLA CPU does)."""
        return _BYTES[self]

    @property
    def bits(self) -> int:
        return _BITS.get(self, self.byte_size * 8)

    @property
    def packed_bits(self) -> int:
        """Bits per element where elements stand packed in memory, as a bitcast sees them: XLA gives 6 bits a byte."""
        return 8 if self.bits == 6 else self.bits

    @property
    def is_complex(self) -> bool:
        return self in (PrimitiveType.C64, PrimitiveType.C128)

    @property
    def is_floating(self) -> bool:
        return self.value[0] in "fb"

    @property
    def is_signed_integer(self) -> bool:
        return self.value[0] == "s"

    @property
    def is_unsigned_integer(self) -> bool:
        return self.value[0] == "u"

    @property
    def is_integer(self) -> bool:
        return self.value[0] in "su"

    @property
    def accumulator(self) -> PrimitiveType:
        """The type in which sums are kept: f32 for narrower floats, else the type itself."""
        return PrimitiveType.F32 if self.is_floating and self.bits < 32 else self

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any] | type[Any]) -> PrimitiveType:
        """Return the element type of a NumPy dtype. Raises ShapeError if HLO has none."""
        found = _FROM_NUMPY.get(np.dtype(dtype))
        if found is None:
            raise ShapeError(f"no HLO element type for NumPy dtype {np.dtype(dtype)}")
        return found

    def __str__(self) -> str:
        return self.value


_BITS = {
    PrimitiveType.S1: 1,
    PrimitiveType.U1: 1,
    PrimitiveType.S2: 2,
    PrimitiveType.U2: 2,
    PrimitiveType.S4: 4,
    PrimitiveType.U4: 4,
    PrimitiveType.F4E2M1FN: 4,
    PrimitiveType.F6E2M3FN: 6,
    PrimitiveType.F6E3M2FN: 6,
}

_NUMPY: dict[PrimitiveType, np.dtype[Any]] = {
    PrimitiveType.PRED: np.dtype(np.bool_),
    PrimitiveType.S1: np.dtype(ml_dtypes.int1),
    PrimitiveType.S2: np.dtype(ml_dtypes.int2),
    PrimitiveType.S4: np.dtype(ml_dtypes.int4),
    PrimitiveType.S8: np.dtype(np.int8),
    PrimitiveType.S16: np.dtype(np.int16),
    PrimitiveType.S32: np.dtype(np.int32),
    PrimitiveType.S64: np.dtype(np.int64),
    PrimitiveType.U1: np.dtype(ml_dtypes.uint1),
    PrimitiveType.U2: np.dtype(ml_dtypes.uint2),
    PrimitiveType.U4: np.dtype(ml_dtypes.uint4),
    PrimitiveType.U8: np.dtype(np.uint8),
    PrimitiveType.U16: np.dtype(np.uint16),
    PrimitiveType.U32: np.dtype(np.uint32),
    PrimitiveType.U64: np.dtype(np.uint64),
    PrimitiveType.F16: np.dtype(np.float16),
    PrimitiveType.BF16: np.dtype(ml_dtypes.bfloat16),
    PrimitiveType.F32: np.dtype(np.float32),
    PrimitiveType.F64: np.dtype(np.float64),
    PrimitiveType.C64: np.dtype(np.complex64),
    PrimitiveType.C128: np.dtype(np.complex128),
    PrimitiveType.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    PrimitiveType.F8E4M3: np.dtype(ml_dtypes.float8_e4m3),
    PrimitiveType.F8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    PrimitiveType.F8E4M3B11FNUZ: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    PrimitiveType.F8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    PrimitiveType.F8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    PrimitiveType.F8E3M4: np.dtype(ml_dtypes.float8_e3m4),
    PrimitiveType.F8E8M0FNU: np.dtype(ml_dtypes.float8_e8m0fnu),
    PrimitiveType.F4E2M1FN: np.dtype(ml_dtypes.float4_e2m1fn),
    PrimitiveType.F6E2M3FN: np.dtype(ml_dtypes.float6_e2m3fn),
    PrimitiveType.F6E3M2FN: np.dtype(ml_dtypes.float6_e3m2fn),
}

_BYTES = {kind: dtype.itemsize for kind, dtype in _NUMPY.items()}
_FROM_NUMPY = {dtype: kind for kind, dtype in _NUMPY.items()}

#: The type of a complex number's parts, and the reverse.
COMPLEX_PARTS = {PrimitiveType.C64: PrimitiveType.F32, PrimitiveType.C128: PrimitiveType.F64}
COMPLEX_OF = {part: kind for kind, part in COMPLEX_PARTS.items()}

#: Floats with the layout of IEEE 754: infinities, and nans with payloads.
IEEE_TYPES = frozenset(
    PrimitiveType(name) for name in ("f8e3m4", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Order of dimensions in memory, minor first; ``suffix`` keeps tiles and memory space as they were written."""

    minor_to_major: tuple[int, ...]
    suffix: str = ""

    @staticmethod
    def default(rank: int) -> Layout:
        return Layout(tuple(range(rank - 1, -1, -1)))

    @property
    def is_default(self) -> bool:
        return not self.suffix and self == Layout.default(len(self.minor_to_major))

    @property
    def memory_space(self) -> int:
        """The n of ``S(n)``, the memory in which the array lies; 0 is the device's own, if none is written."""
        if not self.suffix:
            return 0
        found = re.search(r"S\((-?\d+)\)", self.suffix)
        return int(found[1]) if found else 0

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}{':' + self.suffix if self.suffix else ''}}}"


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Dense array: element type, dimension sizes, optional layout.

    ``dynamic`` marks bounded dynamic dimensions (``<=n``); empty means that all are static. A size of ``UNBOUNDED``
    stands for ``?``: such a shape can be read, checked and printed, but it has no size.
    Equality includes the layout; use ``compatible`` to compare without it.
    """

    element_type: PrimitiveType
    dims: tuple[int, ...]
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def memory_space(self) -> int:
        return self.layout.memory_space if self.layout is not None else 0

    @property
    def is_unbounded(self) -> bool:
        return UNBOUNDED in self.dims

    @property
    def num_elements(self) -> int:
        """Number of elements; bounded dynamic dimensions count in full. Raises UnsupportedError for unbounded ones."""
        if UNBOUNDED in self.dims:
            raise UnsupportedError(f"{self} has an unbounded dimension, so it has no size")
        return math.prod(self.dims)

    @property
    def byte_size(self) -> int:
        return self.num_elements * self.element_type.byte_size

    def with_dims(self, dims: tuple[int, ...]) -> ArrayShape:
        """Return a shape of the same element type with other sizes. The layout stays if the rank does."""
        layout = self.layout if len(dims) == self.rank else None
        return ArrayShape(self.element_type, tuple(dims), layout)

    def with_element_type(self, element_type: PrimitiveType) -> ArrayShape:
        return ArrayShape(element_type, self.dims, self.layout, self.dynamic)

    def without_layout(self) -> ArrayShape:
        if self.layout is None:
            return self
        return ArrayShape(self.element_type, self.dims, None, self.dynamic)

    def with_default_layout(self) -> ArrayShape:
        layout = Layout.default(self.rank)
        return ArrayShape(self.element_type, self.dims, layout, self.dynamic)

    def __str__(self) -> str:
        flags = self.dynamic or (False,) * self.rank
        sizes = ",".join(
            "?" if n == UNBOUNDED else f"<={n}" if d else str(n)
            for n, d in zip(self.dims, flags, strict=True)
        )
        is_stated = self.layout is not None and (self.rank > 0 or self.layout.suffix)
        return f"{self.element_type}[{sizes}]{self.layout if is_stated else ''}"


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple of shapes. Raises ShapeError if it is nested too deeply or has too many leaves (``spmd.limits``)."""

    elements: tuple[Shape, ...] = ()
    num_leaves: int = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        leaf_count, depth = 0, 0
        for element in self.elements:
            if isinstance(element, TupleShape):
                leaf_count += element.num_leaves
                depth = max(depth, element.depth)
            else:
                leaf_count += 1
        if leaf_count > MAX_LEAVES:
            raise ShapeError(f"a tuple has {leaf_count} leaves, the limit is {MAX_LEAVES}")
        if depth >= MAX_NESTING:
            raise ShapeError(f"tuples are nested deeper than {MAX_NESTING}")
        object.__setattr__(self, "num_leaves", leaf_count)
        object.__setattr__(self, "depth", depth + 1)

    @property
    def byte_size(self) -> int:
        """Bytes of all leaves; a tuple itself holds none here."""
        return sum(element.byte_size for element in self.elements)

    def __str__(self) -> str:
        # XLA writes the position before every fifth element.
        parts = [
            f"/*index={i}*/{element}" if i and i % 5 == 0 else str(element)
            for i, element in enumerate(self.elements)
        ]
        return f"({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class TokenShape:
    @property
    def byte_size(self) -> int:
        return 0

    def __str__(self) -> str:
        return "token[]"


@dataclass(frozen=True, slots=True)
class OpaqueShape:
    @property
    def byte_size(self) -> int:
        return 0

    def __str__(self) -> str:
        return "opaque[]"


@dataclass(frozen=True, slots=True)
class BufferShape:
    """``b(f32[4]{0})``: a buffer that operations change in place, as custom calls make and pin it."""

    array: ArrayShape

    @property
    def byte_size(self) -> int:
        return self.array.byte_size

    def __str__(self) -> str:
        return f"b({self.array})"


Shape: TypeAlias = ArrayShape | TupleShape | BufferShape | TokenShape | OpaqueShape
ShapeIndex: TypeAlias = tuple[int, ...]


def array(element_type: PrimitiveType, *dims: int) -> ArrayShape:
    """Return an array shape: ``array(F32, 2, 3)`` is f32[2,3]."""
    return ArrayShape(element_type, dims)


def as_array(shape: Shape) -> ArrayShape:
    """Return ``shape``. Raises ShapeError if it is not an array."""
    if not isinstance(shape, ArrayShape):
        raise ShapeError(f"expected an array shape, found {shape}")
    return shape


def as_tuple(shape: Shape) -> TupleShape:
    if not isinstance(shape, TupleShape):
        raise ShapeError(f"expected a tuple shape, found {shape}")
    return shape


def leaves(shape: Shape, index: ShapeIndex = ()) -> Iterator[tuple[ShapeIndex, Shape]]:
    """Yield every non-tuple part with its index, in depth-first order (XLA's ShapeUtil leaf order)."""
    if isinstance(shape, TupleShape):
        for i, element in enumerate(shape.elements):
            yield from leaves(element, (*index, i))
    else:
        yield index, shape


def subshape(shape: Shape, index: ShapeIndex) -> Shape:
    for i in index:
        shape = as_tuple(shape).elements[i]
    return shape


def array_leaves(shape: Shape) -> Iterator[tuple[ShapeIndex, ArrayShape]]:
    """Yield the arrays of a shape. Tokens are left out; any other leaf is an error."""
    for index, leaf in leaves(shape):
        if not isinstance(leaf, TokenShape):
            yield index, as_array(leaf)


def array_shapes(*shapes: Shape) -> tuple[ArrayShape, ...]:
    """Return the arrays of ``shapes``, without tokens and other leaves."""
    return tuple(leaf for one in shapes for _, leaf in leaves(one) if isinstance(leaf, ArrayShape))
