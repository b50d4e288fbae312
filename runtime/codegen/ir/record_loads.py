"""Lines of IR for functions that are written as text: loads of a record's fields, and the end of a loop's body."""

from __future__ import annotations

from typing import get_type_hints

from runtime.codegen.record import Record, Word, word_index

#: Functions ``@word`` and ``@pointer``, which load word ``number`` of a record.
RECORD_LOADS = """
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


def read(kind: type[Record], *names: str) -> str:
    """Return lines that load each of these fields of %record, a ``kind``, into %name."""
    hints = get_type_hints(kind)
    loads = ("i64 @word" if hints[name] is Word else "ptr @pointer" for name in names)
    return "\n".join(
        f"  %{name} = call {load}(ptr %record, i64 {word_index(kind, name)})"
        for name, load in zip(names, loads, strict=True)
    )


def again(name: str, count: str, label: str, then: str, step: int | str = 1) -> str:
    """Return the end of a loop's body: it adds ``step`` to %{name}, giving %next_{name}, and branches.

    The branch goes to block ``label`` while the sum is below %{count}, else to block ``then``.
    """
    return (
        f"  %next_{name} = add nuw nsw i64 %{name}, {step}\n"
        f"  %more_{name} = icmp ult i64 %next_{name}, %{count}\n"
        f"  br i1 %more_{name}, label %{label}, label %{then}"
    )
