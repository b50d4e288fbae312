"""The wire format against its definition: varints, packed lists, fields in pieces, what is stepped over."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.errors import HloParseError
from spmd.proto.message import Message, flags, integer, integers, message, messages, number64, text
from spmd.proto.wire import (
    pack_array,
    pack_varints,
    read_varint,
    signed,
    unpack_array,
    unpack_varints,
    varint,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


class Inner(Message):
    size = integer(1)
    names = text(2)


class Outer(Message):
    number = integer(1)
    inner = message(2, lambda: Inner)
    sizes = integers(3)
    on = flags(4)
    parts = messages(5, lambda: Inner)
    weight = number64(6)


@given(INT64)
def test_varints_come_back(value: int) -> None:
    data = varint(value)
    found, end = read_varint(data, 0)
    assert (signed(found), end) == (value, len(data))
    assert len(data) <= 10


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\x00"), (127, b"\x7f"), (300, b"\xac\x02"), (-1, b"\xff" * 9 + b"\x01")],
)
def test_varints_are_those_of_the_format(value: int, data: bytes) -> None:
    assert varint(value) == data


@given(st.lists(INT64, max_size=20))
def test_array_and_list_forms_agree(values: list[int]) -> None:
    data = pack_varints(values)
    assert pack_array(np.array(values, np.int64)) == data
    assert unpack_array(data).view(np.int64).tolist() == values
    assert [signed(n) for n in unpack_varints(data)] == values


@given(INT64, st.lists(INT64, max_size=5), st.lists(st.booleans(), max_size=5), st.floats())
def test_messages_come_back(number: int, sizes: list[int], on: list[bool], weight: float) -> None:
    inner = Inner()
    inner.size, inner.names = number, "näme"
    outer = Outer()
    outer.number, outer.sizes, outer.on = number, tuple(sizes), tuple(on)
    outer.inner, outer.parts, outer.weight = inner, [inner, Inner()], weight
    again = Outer(bytes(outer))
    assert (again.number, again.sizes, again.on) == (number, tuple(sizes), tuple(on))
    assert again.weight == weight or weight != weight
    assert again.inner is not None
    assert (again.inner.size, again.inner.names) == (number, "näme")
    assert [part.size for part in again.parts] == [number, 0]


def test_defaults_are_not_written() -> None:
    outer = Outer()
    outer.number, outer.sizes, outer.weight = 0, (), 0.0
    assert bytes(outer) == b""
    assert Outer(b"").inner is None
    outer.inner = Inner()
    assert bytes(outer) == b"\x12\x00"


def test_lists_are_read_packed_and_unpacked() -> None:
    assert Outer(b"\x1a\x02\x01\x02\x18\x03\x1a\x01\x04").sizes == (1, 2, 3, 4)


def test_a_message_in_pieces_is_merged() -> None:
    inner = Outer(b"\x12\x02\x08\x05\x12\x03\x12\x01x").inner
    assert inner is not None
    assert (inner.size, inner.names) == (5, "x")


def test_unknown_fields_are_stepped_over() -> None:
    unknown = b"\xa0\x06\x01\xa2\x06\x02ab\xa5\x06\x00\x00\x00\x00\xa1\x06" + b"\x00" * 8
    assert Outer(unknown + b"\x08\x07").number == 7


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "byte 1: an integer has no end"),
        (b"\x08" + b"\x80" * 11, "byte 1: an integer has no end"),
        (b"\x12\x05ab", "byte 0: field 2 claims 5 bytes, 2 are left"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "claims 9223372036854775807 bytes"),
        (b"\x31\x00\x00", "byte 0: field 6 claims 8 bytes, 2 are left"),
        (b"\x0a\x00", "byte 0: field number has wire type 2"),
        (b"\x0b\x0c", "byte 0: unknown wire type 3"),
        (b"\x00\x01", "byte 0: field number 0"),
    ],
)
def test_malformed_messages_say_where(data: bytes, reason: str) -> None:
    with pytest.raises(HloParseError, match=f"Outer, .*{reason}"):
        Outer(data)


def test_text_must_be_utf8() -> None:
    with pytest.raises(HloParseError, match=r"Inner\.names is not UTF-8"):
        Inner(b"\x12\x01\xff").names  # noqa: B018
