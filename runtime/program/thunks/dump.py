"""Text form of thunk sequences."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.program.thunks import Thunk, ThunkSequence, UseKind


def dump_thunks(thunks: ThunkSequence) -> str:
    """Return a text with a line for each thunk: its class, its name, and the slices that it reads and writes."""
    return "\n".join(_lines(thunks, 0)) + "\n"


def _lines(thunk: Thunk, depth: int) -> Iterator[str]:
    reads = ", ".join(str(use.slice) for use in thunk.buffer_uses() if use.kind is UseKind.READ)
    writes = ", ".join(str(use.slice) for use in thunk.buffer_uses() if use.kind is UseKind.WRITE)
    arrow = f" ({reads}) -> ({writes})" if reads or writes else ""
    yield f"{'  ' * depth}{type(thunk).__name__.removesuffix('Thunk')} {thunk.name}{arrow}"
    for inner in thunk.nested():
        yield from _lines(inner, depth + 1)
