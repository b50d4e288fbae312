"""Common code for native functions that read a record of 64-bit words: its words, and multi-indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, get_type_hints

import numpy as np

from runtime.codegen.ir.record import Record, Word, word_index
from spmd.literal import NDArray

#: ``@word`` and ``@pointer``: word ``number`` of a record.
WORDS = """
define internal i64 @word(ptr %record, i64 %number) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %number
  %w = load i64, ptr %p
  ret i64 %w
}

define internal ptr @pointer(ptr %record, i64 %number) alwaysinline {
  %p = getelementptr ptr, ptr %record, i64 %number
  %w = load ptr, ptr %p
  ret ptr %w
}
"""

#: Number of digits that ``@offset`` takes.
RANK = 4

#: ``@offset``: the sum of digits times strides, which lie ``apart`` words apart from word ``first``
#: on. Needs WORDS.
OFFSET = """
define internal i64 @offset(
    ptr %record, i64 %first, i64 %apart, i64 %d0, i64 %d1, i64 %d2, i64 %d3) alwaysinline {
  %n1 = add i64 %first, %apart
  %n2 = add i64 %n1, %apart
  %n3 = add i64 %n2, %apart
  %s0 = call i64 @word(ptr %record, i64 %first)
  %s1 = call i64 @word(ptr %record, i64 %n1)
  %s2 = call i64 @word(ptr %record, i64 %n2)
  %s3 = call i64 @word(ptr %record, i64 %n3)
  %p0 = mul i64 %d0, %s0
  %p1 = mul i64 %d1, %s1
  %p2 = mul i64 %d2, %s2
  %p3 = mul i64 %d3, %s3
  %p01 = add i64 %p0, %p1
  %p23 = add i64 %p2, %p3
  %p = add i64 %p01, %p23
  ret i64 %p
}
"""


def read(kind: type[Record], *names: str) -> str:
    """Return lines that load each of these fields of %record, a ``kind``, into %name."""
    hints = get_type_hints(kind)
    loads = ("i64 @word" if hints[name] is Word else "ptr @pointer" for name in names)
    return "\n".join(
        f"  %{name} = call {load}(ptr %record, i64 {word_index(kind, name)})"
        for name, load in zip(names, loads, strict=True)
    )


def digits(name: str, number: str, sizes: Sequence[str]) -> str:
    """Return lines that split ``number`` into %{name}0, %{name}1, .., by ``sizes`` (values), the last one fastest."""
    lines = []
    for d in range(len(sizes) - 1, 0, -1):
        lines += [
            f"  %{name}{d} = urem i64 {number}, {sizes[d]}",
            f"  %{name}_left{d} = udiv i64 {number}, {sizes[d]}",
        ]
        number = f"%{name}_left{d}"
    return "\n".join([*lines, f"  %{name}0 = add i64 {number}, 0"])


def offset(result: str, name: str, first_word: int, apart: int = 1) -> str:
    """Return the line that computes %{result}: digits %{name}0.. times the strides from word ``first_word`` on."""
    arguments = ", ".join(f"i64 %{name}{d}" for d in range(RANK))
    return (
        f"  %{result} = call i64 @offset(ptr %record, i64 {first_word}, i64 {apart}, {arguments})"
    )


def again(name: str, count: str, label: str, then: str, step: int | str = 1) -> str:
    """Return the end of a round: to block ``label`` with %next_{name}, ``step`` more than %{name}, while it is below
    %{count}; else to block ``then``.
    """
    return (
        f"  %next_{name} = add nuw nsw i64 %{name}, {step}\n"
        f"  %more_{name} = icmp ult i64 %next_{name}, %{count}\n"
        f"  br i1 %more_{name}, label %{label}, label %{then}"
    )


Words: TypeAlias = Sequence[int] | NDArray


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """64-bit words by name, in order; ``pointers`` are read as such."""

    names: tuple[str, ...]
    pointers: frozenset[str]

    def read(self, *names: str) -> str:
        """Return lines that load each of these words of %record into %name."""
        kinds = ("ptr @pointer" if name in self.pointers else "i64 @word" for name in names)
        return "\n".join(
            f"  %{name} = call {kind}(ptr %record, i64 {self.names.index(name)})"
            for name, kind in zip(names, kinds, strict=True)
        )


def with_lists(head: Sequence[int], lists: Sequence[Words], address: int) -> NDArray:
    """Return the words of ``head``, then the addresses of ``lists``, then these; all of it begins at ``address``."""
    ends = np.cumsum([len(head) + len(lists), *map(len, lists)])
    parts = [head, address + 8 * ends[:-1], *lists]
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
