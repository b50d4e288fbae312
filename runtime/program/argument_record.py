"""Argument records of native functions. One class gives the order of 64-bit words to Python and to generated code.

A ``@record`` class is like a dataclass whose fields are numbers (``Word``), addresses (``Address``), other records,
or lists of these. The lengths of lists are given by name to the writer of the function that takes the record:

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

``word_index`` returns the index of a field's first word.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import numpy as np

from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray

if TYPE_CHECKING:
    Word = Any
    Address = Any
    Listed = Any
else:

    class Word:
        """Field that is a 64-bit number: an ``int`` in Python, an ``Int`` in generated code."""

    class Address:
        """Field that is an address: an ``int`` in Python, a ``Pointer`` in generated code."""

    class Listed:
        """Field that is the address of words packed behind the record.

        Its value is a sequence of numbers in Python, and a ``Pointer`` in generated code.
        """


T = TypeVar("T")


class _Sized:
    """Value of a list field in a class body until ``record`` replaces it: names of the lengths of the field's lists."""

    def __init__(self, lengths: tuple[str, ...]) -> None:
        self.lengths = lengths


def sized(*lengths: str) -> Any:
    """Declare a list field. ``lengths`` names its length and then those of nested lists, from the outermost inwards.

    The length of a list field that is declared without ``sized`` has the name of the field.
    """
    return _Sized(lengths)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(sized,))
def record(cls: type[T]) -> type[T]:
    """Turn ``cls``, a subclass of Record, into a record class: its fields are those of its bases, then its annotations.

    Dataclasses are not used because creating one takes half a millisecond, and a program's start creates 60 records.
    """
    own = vars(cls)
    names = {name: None for base in cls.__mro__[1:] for name in getattr(base, _FIELDS, ())}
    names.update(dict.fromkeys(own.get("__annotations__", ())))
    lengths = dict(getattr(cls, _LENGTHS, {}))
    for name in names:
        if isinstance(own.get(name), _Sized):
            lengths[name] = own[name].lengths
            delattr(cls, name)
    setattr(cls, _FIELDS, tuple(names))
    setattr(cls, _LENGTHS, lengths)
    cls._shape = None  # type: ignore[attr-defined]
    return cls


_FIELDS, _LENGTHS = "_field_names", "_field_lengths"


class Record:
    """Base class of records. Where a field is a record of single words, a tuple of numbers may be given instead."""

    _field_names: ClassVar[tuple[str, ...]] = ()
    _field_lengths: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    _shape: ClassVar[Shape | None] = None

    def __init__(self, *values: Any, **named: Any) -> None:
        """Set all fields, by position and then by name. Raises TypeError unless each field is given exactly once."""
        names = self._field_names
        if len(values) + len(named) != len(names):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}")
        fields = self.__dict__  # in the order of the fields
        fields.update(zip(names, values, strict=False))
        if named:
            try:
                fields.update([(name, named[name]) for name in names[len(values) :]])
            except KeyError as missing:
                raise TypeError(f"{type(self).__name__} has no {missing}") from None

    def with_fields(self, **changed: Any) -> Self:
        """Return a copy of the record with other values for the fields ``changed``."""
        return type(self)(**(self.__dict__ | changed))

    def to_list(self) -> list[int]:
        """Return the words of all fields, in order. The word of a ``Listed`` field is 0."""
        values: list[int] = []
        self._append_to(values, {})
        return values

    def to_array(self) -> NDArray:
        """Return the words as an int64 array, whose address is passed to native code.

        The sequences of ``Listed`` fields follow the record in the same array, and the fields hold their addresses. The
        array must live as long as native code uses it.
        """
        values: list[int] = []
        listed: dict[int, Any] = {}
        self._append_to(values, listed)
        if not listed:
            return np.array(values, np.int64)
        lists = [np.asarray(each, np.int64).ravel() for each in listed.values()]
        array = np.concatenate([np.array(values, np.int64), *lists])
        end = len(values)
        for index, each in zip(listed, lists, strict=True):
            array[index] = array.ctypes.data + 8 * end
            end += len(each)
        return array

    def _append_to(self, values: list[int], listed: dict[int, Any]) -> None:
        """Append the words of all fields to ``values``.

        The sequence of a ``Listed`` field is entered in ``listed``, by the index of the word for its address.
        """
        shape = self._shape or _shape(type(self))
        if shape.is_flat:
            values.extend(self.__dict__.values())
            return
        for one, value in zip(shape.fields, self.__dict__.values(), strict=True):
            if one.is_word:
                values.append(value)
            elif one.kind is Listed:
                listed[len(values)] = value
                values.append(0)
            elif one.is_record:
                for item in value if one.lengths else (value,):
                    if isinstance(item, tuple):
                        values.extend(item)
                    else:
                        item._append_to(values, listed)
            else:
                for _ in one.lengths[1:]:
                    value = itertools.chain.from_iterable(value)
                values.extend(value)


def field_names(kind: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields of record class ``kind``, in order."""
    return kind._field_names


def word_index(kind: type[Record], name: str) -> int:
    """Return the index of the first word of field ``name``.

    Raises KeyError if there is no such field, or if a list comes before it.
    """
    at = 0
    for one in _shape(kind).fields:
        if one.name == name:
            return at
        at += _size(one, {})
    raise KeyError(name)


def word_count(kind: type[Record], lengths: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the number of words of a record of class ``kind``. ``lengths``: length of each list by name."""
    return _layout(kind, lengths)[1]


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a record class.

    kind: Word, Address, Listed or a record class. lengths: names of the lengths of a list and of the lists nested in
    it, from the outermost inwards; empty if the field is no list. is_record: ``kind`` is a record class. is_word: the
    field is a single Word or Address.
    """

    name: str
    kind: Any
    lengths: tuple[str, ...]
    is_record: bool
    is_word: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """Fields of a record class. is_flat: whether every field is a single Word or Address."""

    fields: tuple[Field, ...]
    is_flat: bool


def _size(one: Field, lengths: Mapping[str, int]) -> int:
    """Return the number of words of a field. ``lengths``: length of each list by name."""
    return _item_size(one.kind, lengths) * math.prod([lengths[name] for name in one.lengths])


def _item_size(kind: type, lengths: Mapping[str, int]) -> int:
    return word_count(kind, lengths) if issubclass(kind, Record) else 1


def _shape(cls: Any) -> Shape:
    """Return the fields of a record class. The class caches them."""
    known: Shape | None = vars(cls).get("_shape")
    if known is not None:
        return known
    hints = get_type_hints(cls)
    found = []
    for name in cls._field_names:
        kind, depth = hints[name], 0
        while arguments := get_args(kind):
            kind, depth = arguments[0], depth + 1
        lengths = cls._field_lengths.get(name, (name,) * min(depth, 1))
        assert len(lengths) == depth, f"{cls.__name__}.{name} names the lengths of its lists"
        is_record = issubclass(kind, Record)
        is_word = not (lengths or is_record or kind is Listed)
        found.append(Field(name, kind, lengths, is_record, is_word))
    cls._shape = shape = Shape(tuple(found), all(one.is_word for one in found))
    return shape


def _layout(kind: Any, lengths: Mapping[str, int]) -> tuple[dict[str, tuple[int, Field]], int]:
    """Return each field by name with the index of its first word, and the number of words of the record."""
    return _layout_of(kind, tuple(lengths.items()))


@lru_cache(maxsize=1024)
def _layout_of(
    kind: Any, lengths: tuple[tuple[str, int], ...]
) -> tuple[dict[str, tuple[int, Field]], int]:
    found, at = {}, 0
    for one in _shape(kind).fields:
        found[one.name] = at, one
        at += _size(one, dict(lengths))
    return found, at


class RecordView:
    """Record in generated code. Its attributes are values, views of nested records, and lists of these.

    load: emits the load of a word, given its index and whether it is an address. kind: record class. lengths: length of
    each list by name. first: index of the record's first word. is_cached: whether each field is loaded only once.
    """

    def __init__(
        self,
        load: Callable[[int, bool], Any],
        kind: type[Record],
        lengths: Mapping[str, int],
        first: int = 0,
        *,
        is_cached: bool = True,
    ) -> None:
        self._load = load
        self._lengths = lengths
        self._first = first
        self._is_cached = is_cached
        self._found, _ = _layout(kind, lengths)

    def __getattr__(self, name: str) -> Any:
        try:
            offset, one = self._found[name]
        except KeyError:
            raise AttributeError(name) from None
        first = self._first + offset
        if one.lengths or one.is_record:
            value = self._read(one.kind, first, one.lengths)
        else:
            value = self._load(first, one.kind is not Word)
        if self._is_cached:
            self.__dict__[name] = value
        return value

    def _read(self, kind: Any, first: int, lengths: Sequence[str]) -> Any:
        if lengths:
            count, *inner = (self._lengths[name] for name in lengths)
            item = _item_size(kind, self._lengths) * math.prod(inner)
            return [self._read(kind, first + k * item, lengths[1:]) for k in range(count)]
        if issubclass(kind, Record):
            return RecordView(self._load, kind, self._lengths, first, is_cached=self._is_cached)
        return self._load(first, kind is not Word)
