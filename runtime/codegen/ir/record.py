"""Records of 64-bit words: one class states the order of fields for Python, which packs them, and for native code.

A ``@record`` class is a frozen dataclass whose fields are numbers (``Word``), addresses (``Address``), other records,
or lists of these. A list has as many items as the function says that is generated for the record:

    @record
    class Row(Record):
        address: Address
        strides: Sequence[Word] = sized("rank")

    @record
    class Rows(Record):
        rows: Sequence[Row]
        count: Word

    Rows([Row(x.ctypes.data, x.strides) for x in arrays], 5).to_array()     # numpy.int64, in the order of the fields
    FunctionWriter("spmd_rows", Rows, rows=2, rank=3).record.rows[1].strides[2]     # an Int

A record of a fixed size is a NumPy structured type, too: ``structured(Row)``; ``word_index`` gives a field's number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, get_args, get_type_hints

import numpy as np

from spmd.literal import NDArray

if TYPE_CHECKING:
    Word = Any
    Address = Any
    Listed = Any
else:

    class Word:
        """A number of 64 bits: an ``int`` in Python, an ``Int`` in generated code."""

    class Address:
        """An address: an ``int`` in Python, a ``Pointer`` in generated code."""

    class Listed:
        """Words behind the record, which has their address: a sequence in Python, a ``Pointer`` in generated code."""


_LENGTHS = "lengths"
T = TypeVar("T")


def sized(*lengths: str) -> Any:
    """Return a list field whose length, and those of the lists in it, have these names; else it is the field's name."""
    return field(metadata={_LENGTHS: lengths})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(sized,))
def record(cls: type[T]) -> type[T]:
    """Make a subclass of Record a frozen dataclass."""
    return dataclass(frozen=True, eq=False)(cls)


class Record:
    """Base class of records."""

    def to_words(self) -> list[int]:
        """Return the words of all fields."""
        words: list[int] = []
        self._append_to(words, {})
        return words

    def to_array(self) -> NDArray:
        """Return the packed words, whose address native code takes; ``Listed`` words lie behind the record itself."""
        words: list[int] = []
        listed: dict[int, Any] = {}
        self._append_to(words, listed)
        if not listed:
            return np.array(words, np.int64)
        lists = [np.asarray(each, np.int64).ravel() for each in listed.values()]
        array = np.concatenate([np.array(words, np.int64), *lists])
        end = len(words)
        for place, each in zip(listed, lists, strict=True):
            array[place] = array.ctypes.data + 8 * end
            end += len(each)
        return array

    def _append_to(self, words: list[int], listed: dict[int, Any]) -> None:
        """Append the words of all fields; ``listed`` has lists by the number of the word for their address."""
        for one in _shape(type(self)):
            value = getattr(self, one.name)
            if one.kind is Listed:
                listed[len(words)] = value
                words.append(0)
                continue
            if not one.lengths:
                value = (value,)
            for _ in one.lengths[1:]:
                value = itertools.chain.from_iterable(value)
            if one.is_record:
                for item in value:
                    item._append_to(words, listed)
            else:
                words.extend(value)


def field_names(kind: type[Record]) -> tuple[str, ...]:
    """Return the names of all fields, in order."""
    return tuple(one.name for one in _shape(kind))


def word_index(kind: type[Record], name: str) -> int:
    """Return the number of the first word of field ``name``; no list may come before it."""
    at = 0
    for one in _shape(kind):
        if one.name == name:
            return at
        at += _size(one, {})
    raise KeyError(name)


def word_count(kind: type[Record], lengths: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the number of words of a record whose lists have these ``lengths``."""
    return _layout(kind, lengths)[1]


def structured(kind: type[Record]) -> np.dtype[Any]:
    """Return the NumPy type of a record that has no lists and no records in it."""
    return np.dtype([(one.name, np.int64) for one in _shape(kind)])


@dataclass(frozen=True, slots=True)
class Field:
    """Field of items of ``kind``: Word, Address or a record; ``lengths``: names of a list's, from the outer one on."""

    name: str
    kind: Any
    lengths: tuple[str, ...]
    is_record: bool


def _size(one: Field, lengths: Mapping[str, int]) -> int:
    """Return the number of words of a field."""
    return _item_size(one.kind, lengths) * math.prod([lengths[name] for name in one.lengths])


def _item_size(kind: type, lengths: Mapping[str, int]) -> int:
    return word_count(kind, lengths) if issubclass(kind, Record) else 1


def _shape(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a record class."""
    return _shape_of(kind)


@cache
def _shape_of(cls: Any) -> tuple[Field, ...]:
    """Return the fields of a record class."""
    hints = get_type_hints(cls)
    found = []
    for one in fields(cls) if is_dataclass(cls) else ():
        kind, depth = hints[one.name], 0
        while arguments := get_args(kind):
            kind, depth = arguments[0], depth + 1
        lengths = one.metadata.get(_LENGTHS, (one.name,) * min(depth, 1))
        assert len(lengths) == depth, f"{cls.__name__}.{one.name} names the lengths of its lists"
        found.append(Field(one.name, kind, lengths, issubclass(kind, Record)))
    return tuple(found)


def _layout(kind: Any, lengths: Mapping[str, int]) -> tuple[dict[str, tuple[int, Field]], int]:
    """Return each field with the number of its first word, and the number of words of all."""
    return _layout_of(kind, tuple(lengths.items()))


@lru_cache(maxsize=1024)
def _layout_of(
    kind: Any, lengths: tuple[tuple[str, int], ...]
) -> tuple[dict[str, tuple[int, Field]], int]:
    found, at = {}, 0
    for one in _shape(kind):
        found[one.name] = at, one
        at += _size(one, dict(lengths))
    return found, at


class RecordView:
    """Fields of a record of generated code: attributes that are values, views of records, and lists of both.

    load: emits the load of a word, given its number and whether it is an address. is_kept: a field is loaded once.
    """

    def __init__(
        self,
        load: Callable[[int, bool], Any],
        kind: type[Record],
        lengths: Mapping[str, int],
        first: int = 0,
        *,
        is_kept: bool = True,
    ) -> None:
        self._load = load
        self._lengths = lengths
        self._first = first
        self._is_kept = is_kept
        self._found, _ = _layout(kind, lengths)

    def __getattr__(self, name: str) -> Any:
        try:
            place, one = self._found[name]
        except KeyError:
            raise AttributeError(name) from None
        first = self._first + place
        if one.lengths or one.is_record:
            value = self._read(one.kind, first, one.lengths)
        else:
            value = self._load(first, one.kind is not Word)
        if self._is_kept:
            self.__dict__[name] = value
        return value

    def _read(self, kind: Any, first: int, lengths: Sequence[str]) -> Any:
        if lengths:
            count, *inner = (self._lengths[name] for name in lengths)
            item = _item_size(kind, self._lengths) * math.prod(inner)
            return [self._read(kind, first + k * item, lengths[1:]) for k in range(count)]
        if issubclass(kind, Record):
            return RecordView(self._load, kind, self._lengths, first, is_kept=self._is_kept)
        return self._load(first, kind is not Word)
