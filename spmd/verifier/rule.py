"""A rule of the verifier: the invariant's code, its words, and the check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass

#: Yields one message per violation: which instruction (its text), what was expected, what was found.
Check: TypeAlias = Callable[[HloModule], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the verifier. ``code`` and ``statement`` are those of the class docstring that states the invariant
    (I1, C2, M3, ...).
    """

    code: str
    statement: str
    check: Check
