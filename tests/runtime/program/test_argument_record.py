"""Records: Python's words and native code's fields are the same ones."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.llvm.jit import host_jit
from runtime.program.argument_record import (
    Address,
    Record,
    Word,
    record,
    sized,
    word_count,
    word_index,
)
from spmd.literal import NDArray


@record
class Pair(Record):
    """Two numbers."""

    first: Word
    second: Word


@record
class Row(Record):
    """Address, and strides by dimension."""

    address: Address
    strides: Sequence[Word] = sized("rank")


@record
class Nest(Record):
    """Everything that a record may have."""

    head: Word
    rows: Sequence[Row]
    pair: Pair
    steps: Sequence[Sequence[Word]] = sized("rows", "rank")
    last: Word


LENGTHS = {"rows": 2, "rank": 3}


def nest() -> Nest:
    rows = [Row(10, (11, 12, 13)), Row(20, np.array([21, 22, 23]))]
    return Nest(1, rows, Pair(30, -31), [[41, 42, 43], [51, 52, 53]], 60)


def run(f: FunctionWriter, name: str, words: NDArray) -> None:
    library = host_jit().compile(f.end(), (name,))
    library.function(name, None, ctypes.c_void_p)(words.ctypes.data)


def test_words_are_in_the_order_of_the_fields() -> None:
    words = [1, 10, 11, 12, 13, 20, 21, 22, 23, 30, -31, 41, 42, 43, 51, 52, 53, 60]
    assert nest().to_list() == words
    assert nest().to_array().dtype == np.int64
    assert word_count(Nest, LENGTHS) == len(words)


def test_generated_code_reads_each_field_as_python_packed_it() -> None:
    f = FunctionWriter("read", Nest, **LENGTHS)
    rec = f.record
    found = f.parameters[0].element("i64", word_count(Nest, LENGTHS))
    values = [rec.last, rec.pair.second, rec.rows[1].strides[2], rec.steps[1][0], rec.head]
    for n, value in enumerate(values):
        found.element("i64", n).store(value)
    found.element("i64", len(values)).store(rec.rows[1].address)
    words = np.append(nest().to_array(), [0] * 6)
    run(f, "read", words)
    assert words[-6:].tolist() == [60, -31, 23, 51, 1, 20]


def test_words_in_front_of_a_list_have_numbers() -> None:
    assert word_index(Pair, "second") == 1
    assert word_index(Nest, "rows") == 1
    with pytest.raises(KeyError):
        word_index(Nest, "nothing")


def test_a_view_reads_memory_at_each_use() -> None:
    f = FunctionWriter("add", Pair)
    pair = f.view(Pair, f.parameters[0])
    place = f.parameters[0]
    place.store(pair.first + 1)
    place.element("i64", 1).store(pair.first + pair.second)
    words = Pair(5, 7).to_array()
    run(f, "add", words)
    assert words.tolist() == [6, 13]
