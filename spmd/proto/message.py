"""Messages as classes whose fields are declared like those of a .proto file.

    class WindowDimension(Message):
        size = integer(1)
        window_reversal = flag(7)

    dimension = WindowDimension(data)   # one level is split; a field is decoded when it is read
    dimension.size                      # 0 when absent, as in proto3
    bytes(dimension)

A message-valued field reads as None when it is absent. Assign one when it is complete: its bytes are taken then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from spmd.errors import HloParseError
from spmd.proto.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Raw,
    Raws,
    join_fields,
    pack_varints,
    signed,
    split_fields,
    unpack_varints,
)

T = TypeVar("T")
M = TypeVar("M", bound="Message")
Kind = Callable[[], type[M]]


class Field(Generic[T]):
    """A field: number, wire types it may come in (the first one is written), and how its values are understood."""

    __slots__ = ("decode", "default", "encode", "name", "number", "wires")

    def __init__(
        self,
        number: int,
        wires: tuple[int, ...],
        default: T,
        decode: Callable[[list[Raw]], T],
        encode: Callable[[T], list[Raw]],
    ) -> None:
        self.number = number
        self.wires = wires
        self.default = default
        self.decode = decode
        self.encode = encode
        self.name = ""

    def __set_name__(self, owner: type[Message], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, message: None, owner: type[Message]) -> Field[T]: ...
    @overload
    def __get__(self, message: Message, owner: type[Message]) -> T: ...
    def __get__(self, message: Message | None, owner: type[Message]) -> Field[T] | T:
        if message is None:
            return self
        raws = message.raws.get(self.number)
        if raws is None:
            return self.default
        try:
            return self.decode(raws)
        except UnicodeDecodeError as error:
            raise HloParseError(f"{owner.__name__}.{self.name} is not UTF-8") from error
        except HloParseError as error:
            raise HloParseError(f"{owner.__name__}.{self.name}: {error}") from error

    def __set__(self, message: Message, value: T) -> None:
        encoded = self.encode(value)
        if encoded:
            message.raws[self.number] = encoded
        else:
            message.raws.pop(self.number, None)


class Message:
    """One message, split into fields. Fields that the class does not declare are left out."""

    __slots__ = ("raws",)
    _numbers: ClassVar[dict[int, int]] = {}
    _names: ClassVar[dict[int, str]] = {}
    _wires: ClassVar[dict[int, int]] = {}

    def __init_subclass__(cls) -> None:
        fields = [field for field in vars(cls).values() if isinstance(field, Field)]
        cls._numbers = {f.number << 3 | wire: f.number for f in fields for wire in f.wires}
        cls._names = {f.number: f.name for f in fields}
        cls._wires = {f.number: f.wires[0] for f in fields}
        if len(cls._names) != len(fields):
            raise ValueError(f"{cls.__name__} declares a field number twice")

    def __init__(self, data: bytes = b"") -> None:
        """Split ``data`` into fields. Raises HloParseError if it is no message."""
        try:
            self.raws: Raws = split_fields(data, self._numbers, self._names)
        except HloParseError as error:
            raise HloParseError(f"{type(self).__name__}, {error}") from error

    def bytes_of(self, field: Field[Any]) -> bytes | None:
        """Return the bytes of a message field without decoding them; None if it is absent."""
        raws = self.raws.get(field.number)
        return None if raws is None else _joined(raws)

    def __bytes__(self) -> bytes:
        return join_fields(self.raws, self._wires)


def _joined(raws: list[Raw]) -> bytes:
    """Return the concatenation of the pieces, which is how protocol buffers define a message (or packed list) in
    several pieces.
    """
    only = raws[0]
    if len(raws) == 1 and isinstance(only, bytes):
        return only
    return b"".join(raw for raw in raws if isinstance(raw, bytes))


# ---- one value; the last one wins, and the default is not written
def _last(raws: list[Raw]) -> Any:
    return raws[-1]


def integer(number: int) -> Field[int]:
    """Define a field of type int32, int64 or enum."""
    return Field(number, (VARINT,), 0, lambda raws: signed(_last(raws)), lambda n: [n] if n else [])


def optional_integer(number: int) -> Field[int | None]:
    """Define an integer field whose absence means something else than 0."""
    return Field[int | None](
        number,
        (VARINT,),
        None,
        lambda raws: signed(_last(raws)),
        lambda n: [] if n is None else [n],
    )


def flag(number: int) -> Field[bool]:
    return Field(
        number, (VARINT,), False, lambda raws: _last(raws) != 0, lambda on: [1] if on else []
    )


def text(number: int) -> Field[str]:
    return Field(
        number,
        (BYTES,),
        "",
        lambda raws: cast(bytes, _last(raws)).decode(),
        lambda value: [value.encode()] if value else [],
    )


def data(number: int) -> Field[bytes]:
    return Field(number, (BYTES,), b"", _last, lambda value: [value] if value else [])


def number32(number: int) -> Field[float]:
    """Define a field of type float."""
    return Field(number, (FIXED32,), 0.0, lambda raws: _unpack("<f", raws), _pack("<f"))


def number64(number: int) -> Field[float]:
    """Define a field of type double."""
    return Field(number, (FIXED64,), 0.0, lambda raws: _unpack("<d", raws), _pack("<d"))


def _unpack(struct_format: str, raws: list[Raw]) -> float:
    return cast(float, struct.unpack(struct_format, _last(raws))[0])


def _pack(struct_format: str) -> Callable[[float], list[Raw]]:
    return lambda value: [struct.pack(struct_format, value)] if value else []


def message(number: int, kind: Kind[M]) -> Field[M | None]:
    return Field[M | None](
        number,
        (BYTES,),
        None,
        lambda raws: kind()(_joined(raws)),
        lambda value: [] if value is None else [bytes(value)],
    )


# ---- lists
def integers(number: int) -> Field[tuple[int, ...]]:
    """Define a list of integers, which is written packed and read packed or not."""
    return Field[tuple[int, ...]](
        number, (BYTES, VARINT), (), _read_integers, lambda ns: [pack_varints(ns)] if ns else []
    )


def flags(number: int) -> Field[tuple[bool, ...]]:
    return Field[tuple[bool, ...]](
        number,
        (BYTES, VARINT),
        (),
        lambda raws: tuple(n != 0 for n in _read_integers(raws)),
        lambda ons: [bytes(ons)] if ons else [],
    )


def _read_integers(raws: list[Raw]) -> tuple[int, ...]:
    values: list[int] = []
    for raw in raws:
        values.extend((raw,) if isinstance(raw, int) else unpack_varints(raw))
    return tuple(map(signed, values))


def packed(number: int, fixed: int | None = None) -> Field[bytes]:
    """Define a long list that stays packed bytes: varints, or values of the wire type ``fixed``."""
    return Field(
        number,
        (BYTES, VARINT if fixed is None else fixed),
        b"",
        _read_packed,
        lambda value: [value] if value else [],
    )


def _read_packed(raws: list[Raw]) -> bytes:
    parts = (pack_varints((raw,)) if isinstance(raw, int) else raw for raw in raws)
    return b"".join(parts)


def texts(number: int) -> Field[tuple[str, ...]]:
    return Field[tuple[str, ...]](
        number,
        (BYTES,),
        (),
        lambda raws: tuple(cast(bytes, raw).decode() for raw in raws),
        lambda values: [value.encode() for value in values],
    )


def datas(number: int) -> Field[tuple[bytes, ...]]:
    return Field[tuple[bytes, ...]](
        number, (BYTES,), (), lambda raws: tuple(cast(list[bytes], raws)), lambda vs: list(vs)
    )


def messages(number: int, kind: Kind[M]) -> Field[Sequence[M]]:
    return Field[Sequence[M]](
        number,
        (BYTES,),
        (),
        lambda raws: [kind()(cast(bytes, raw)) for raw in raws],
        lambda values: [bytes(value) for value in values],
    )
