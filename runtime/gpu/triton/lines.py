"""Lines of a Triton kernel: what runs before its loop, in it and after it."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """Part of a kernel. Names of a part are known in the later ones, but those of the loop only in the loop."""

    PROLOGUE = 0
    LOOP = 1
    EPILOGUE = 2


class Lines:
    """Writer of assignments. Equal expressions of one part are assigned once.

    prefix: first letter of the names that it makes.
    """

    def __init__(self, prefix: str = "v") -> None:
        self._prefix = prefix
        self._lines: dict[Level, list[str]] = {level: [] for level in Level}
        self._names: dict[tuple[Level, str], str] = {}

    def of(self, level: Level) -> list[str]:
        """Return the lines of ``level``, without indentation."""
        return self._lines[level]

    def add(self, level: Level, line: str) -> None:
        """Add ``line`` to ``level``."""
        self._lines[level].append(line)

    def assigned(self, level: Level, expression: str, name: str = "") -> str:
        """Return the name of the value of ``expression``, after adding its assignment to ``level`` if it is no name.

        name: the name that it gets; by default a number after the prefix.
        """
        if expression.isidentifier():
            return expression
        key = (level, expression)
        if key not in self._names:
            self._names[key] = name or f"{self._prefix}{len(self._names)}"
            self.add(level, f"{self._names[key]} = {expression}")
        return self._names[key]
