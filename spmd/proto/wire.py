"""The protocol buffer wire format: varints, and a message split into its fields.

Nothing is allocated by a size that the data merely claims: a length is held against the bytes that are left first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from spmd.errors import HloParseError

#: Value of a field as it is encoded: an integer (varint), or the bytes of any other type.
Raw: TypeAlias = int | bytes
Raws: TypeAlias = dict[int, list[Raw]]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
_MASK64 = (1 << 64) - 1
_MAX_VARINT = 10


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the unsigned 64-bit integer at ``pos``, and the position after it."""
    value = shift = 0
    for byte in data[pos : pos + _MAX_VARINT]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & _MASK64, pos + shift // 7
    raise HloParseError(f"byte {pos}: an integer has no end")


def split_fields(data: bytes, numbers: Mapping[int, int], known: Mapping[int, str]) -> Raws:
    """Return the values by field number, each in the order in which they were written.

    ``numbers`` maps a tag (number and wire type) to its field number, ``known`` a number to the field's name. Other
    fields are skipped, as every protocol buffer reader does: they are newer than this schema.
    """
    raws: Raws = {}
    pos, end = 0, len(data)
    while pos < end:
        start = pos
        tag = data[pos]
        pos += 1
        if tag >= 0x80:
            tag, pos = read_varint(data, start)
        wire = tag & 7
        value: Raw
        # Most integers take one byte, which is read in place.
        if wire == VARINT:
            if pos < end and data[pos] < 0x80:
                value = data[pos]
                pos += 1
            else:
                value, pos = read_varint(data, pos)
        else:
            if wire == BYTES and pos < end and data[pos] < 0x80:
                length = data[pos]
                pos += 1
            elif wire == BYTES:
                length, pos = read_varint(data, pos)
            elif wire in _FIXED_SIZES:
                length = _FIXED_SIZES[wire]
            else:
                raise HloParseError(f"byte {start}: unknown wire type {wire}")
            if length > end - pos:
                raise HloParseError(
                    f"byte {start}: field {tag >> 3} claims {length} bytes, {max(end - pos, 0)} are left"
                )
            value = data[pos : pos + length]
            pos += length
        number = numbers.get(tag)
        if number is not None:
            if number in raws:
                raws[number].append(value)
            else:
                raws[number] = [value]
        elif tag >> 3 in known:
            raise HloParseError(f"byte {start}: field {known[tag >> 3]} has wire type {wire}")
        elif tag < 8:
            raise HloParseError(f"byte {start}: field number 0")
    return raws


def join_fields(raws: Raws, wires: Mapping[int, int]) -> bytes:
    """Return the bytes of a message with these fields, in the order of their numbers."""
    parts: list[bytes] = []
    for number in sorted(raws):
        wire = wires[number]
        tag = varint(number << 3 | wire)
        for value in raws[number]:
            parts.append(tag)
            if isinstance(value, int):
                parts.append(varint(value))
                continue
            if wire == BYTES:
                parts.append(varint(len(value)))
            parts.append(value)
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Return ``value`` (a negative one in two's complement of 64 bits) as a varint."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= _MASK64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> int:
    """Convert a varint's value to a signed 64-bit integer."""
    return value - (1 << 64) if value >> 63 else value


# ---- packed lists
def unpack_varints(data: bytes) -> list[int]:
    """Return the unsigned integers of a packed list."""
    if data.isascii():  # each integer takes one byte
        return list(data)
    values: list[int] = []
    pos = 0
    while pos < len(data):
        value, pos = read_varint(data, pos)
        values.append(value)
    return values


def pack_varints(values: Iterable[int]) -> bytes:
    return b"".join(map(varint, values))


def unpack_array(data: bytes) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the unsigned integers of a long packed list, without a Python object per integer."""
    octets = np.frombuffer(data, np.uint8)
    if not octets.size:
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(octets < 0x80)
    if not ends.size or ends[-1] != octets.size - 1:
        raise HloParseError("a list of integers ends within one")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _MAX_VARINT:
        raise HloParseError("an integer in a list has no end")
    position = np.arange(octets.size) - np.repeat(starts, lengths)
    parts = (octets & 0x7F).astype(np.uint64) << (7 * position).astype(np.uint64)
    return np.bitwise_or.reduceat(parts, starts)


def pack_array(values: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    """Return the packed bytes of a long list of integers of any width; negative ones are sign-extended to 64 bits."""
    flat = values.reshape(-1)
    wide = (
        flat.astype(np.int64).view(np.uint64) if flat.dtype.kind == "i" else flat.astype(np.uint64)
    )
    if not wide.size:
        return b""
    shifts = np.arange(0, 7 * _MAX_VARINT, 7, dtype=np.uint64)
    groups = (wide[:, None] >> shifts) & np.uint64(0x7F)
    # The last nonzero digit ends the integer; zero takes one digit.
    lengths = np.maximum(_MAX_VARINT - np.argmax(groups[:, ::-1] != 0, axis=1), 1)
    lengths[wide == 0] = 1
    column = np.arange(_MAX_VARINT)
    groups |= np.where(column < lengths[:, None] - 1, np.uint64(0x80), np.uint64(0))
    packed: bytes = groups.astype(np.uint8)[column < lengths[:, None]].tobytes()
    return packed
