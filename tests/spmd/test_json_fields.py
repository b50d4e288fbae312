"""JSON of unknown origin: each value is checked, each field must be known, and errors name the place."""

from __future__ import annotations

import pytest

from spmd.errors import SpmdError
from spmd.json_fields import JsonFields, read_fields


class WrongError(SpmdError):
    """The error that the reader of these tests raises."""


def read(text: str) -> JsonFields:
    return read_fields(text.encode(), "f.json", "list of things", 60, WrongError)


def test_fields_are_taken_one_by_one() -> None:
    fields = read('{"a": 1, "b": "two", "c": [{"d": 2.5}], "e": {}}')
    assert fields.integer("a", (0, 9)) == 1
    assert fields.text("b") == "two"
    assert fields.items("c", lambda one: one.number("d", (0, 9))) == (2.5,)
    assert fields.inside(fields.pop("e"), "e").where == "f.json: e"
    assert fields.number("missing", (0, 9), 4.0) == 4.0
    assert fields.integer("missing", (0, 9), 4) == 4
    fields.done()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 20, "f.json: no list of things in JSON"),
        ("[]", r"f.json: expected an object, found \[\]"),
        ('{"a": 1, "a": 2}', "a field is given twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\uDFFF": 1}', "surrogates not allowed"),
        (" " * 61, "f.json: 61 bytes, more than 60 for a list of things"),
    ],
)
def test_what_is_no_object_is_refused(text: str, message: str) -> None:
    with pytest.raises(WrongError, match=message):
        read(text)


def test_both_halves_of_a_character_are_one() -> None:
    assert read('{"a": "\\ud83d\\ude00"}').text("a") == "\N{GRINNING FACE}"


def test_wrong_values_name_their_place() -> None:
    with pytest.raises(WrongError, match=r"f.json: c\[1\]: d must be a number, found True"):
        read('{"c": [{"d": 1}, {"d": true}]}').items("c", lambda one: one.number("d", (0, 9)))
    with pytest.raises(WrongError, match=r"f.json: a must be from 2 to 3, found 1"):
        read('{"a": 1}').integer("a", (2, 3), 2)
    with pytest.raises(WrongError, match="field 'b' is missing"):
        read('{"a": 1}').text("b")
    with pytest.raises(WrongError, match="unknown field 'a'"):
        read('{"a": 1}').done()
