"""Writer that collects the attributes of one instruction for printing."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.hlo.computation import HloComputation
from spmd.ops.checks import set_text
from spmd.text.names import written_name


class AttrWriter:
    """Writer of ``name=value`` parts in order; ``percent`` tells whether names have a ``%``."""

    __slots__ = ("parts", "percent")

    def __init__(self, *, percent: bool) -> None:
        self.percent = percent
        self.parts: list[str] = []

    def add(self, name: str, value: object) -> None:
        self.parts.append(f"{name}={value}")

    def optional(self, name: str, value: object) -> None:
        """Write the attribute unless its value is None or empty."""
        if value is not None and value != "" and value != ():
            self.add(name, value)

    def ints(self, name: str, values: Iterable[int]) -> None:
        self.add(name, set_text(values))

    def optional_ints(self, name: str, values: tuple[int, ...]) -> None:
        if values:
            self.ints(name, values)

    def flag(self, name: str, value: bool) -> None:
        if value:
            self.add(name, "true")

    def tokens(self, name: str, values: tuple[str, ...]) -> None:
        if values:
            self.add(name, set_text(values))

    def verbatim(self, pairs: Iterable[tuple[str, str]]) -> None:
        for name, text in pairs:
            self.add(name, text)

    def callee(self, name: str, computation: HloComputation) -> None:
        self.add(name, written_name(computation.name, percent=self.percent))

    def callee_list(self, name: str, computations: Iterable[HloComputation]) -> None:
        self.add(name, "{" + self.names(c.name for c in computations) + "}")

    def names(self, names: Iterable[str]) -> str:
        """Write names with commas between them."""
        return ", ".join(written_name(name, percent=self.percent) for name in names)


def boolean(value: bool) -> str:
    return "true" if value else "false"
