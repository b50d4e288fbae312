"""Record of a loop of which every value is one element."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.program.scalar_program import ScalarProgram
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Statement:
    """places[writes] = program(places[reads]), all of them numbers of places."""

    program: ScalarProgram
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScalarLoop:
    """``condition``; while place ``predicate`` is true then, ``body``, and the condition again. kinds: the places'."""

    kinds: tuple[PrimitiveType, ...]
    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]
    predicate: int
