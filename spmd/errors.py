"""Errors that this project raises on purpose, under one base class.

A message says what was expected, what was found and where. The command line prints it as one line and exits with
``exit_code`` (docs: interface of the ``spmd`` command), so a user never meets a traceback for bad input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A position in a text: 1-based line and column."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SpmdError(Exception):
    """Base of all deliberate errors."""

    exit_code: ClassVar[int] = 2


class HloParseError(SpmdError):
    """Text that is not HLO; holds the position and the offending line.

    ``caret``: columns of ``line`` before the caret, if ``line`` is an excerpt of a longer one. ``errors``: every error
    found in the text, in text order; the position and the message are those of the first.
    """

    def __init__(
        self,
        message: str,
        location: SourceLocation | None = None,
        line: str = "",
        *,
        caret: int | None = None,
    ) -> None:
        self.message = message
        self.location = location
        self.line = line
        self.caret = caret
        self.errors: tuple[HloParseError, ...] = (self,)
        where = f"{location}: " if location else ""
        excerpt = ""
        if location and line:
            excerpt = f"\n  {line}\n  {' ' * (location.column - 1 if caret is None else caret)}^"
        super().__init__(f"{where}{message}{excerpt}")

    @staticmethod
    def all_of(errors: Sequence[HloParseError]) -> HloParseError:
        """Return one error that reports all of ``errors`` (at least one)."""
        first = errors[0]
        if len(errors) == 1:
            return first
        combined = HloParseError(first.message, first.location, first.line, caret=first.caret)
        combined.errors = tuple(errors)
        combined.args = ("\n".join(map(str, errors)),)
        return combined


class VerificationError(SpmdError):
    """A module that breaks an invariant of its stage; ``problems`` has one line for each violation."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems) or (message,)
        super().__init__(message)


class ShapeError(VerificationError):
    """Operand shapes or attributes that an operation does not accept."""


class UnsupportedError(SpmdError):
    """Input that is valid but that this version refuses by name."""


class PackageError(SpmdError, ImportError):
    """A package that this project depends on is too old."""


class ShardingError(SpmdError):
    """A sharding that does not fit its shape, its mesh or the device count."""


class CheckFailed(SpmdError):  # noqa: N818 - names the result of a check
    """An expectation that was not met (values differ, a checker found a violation)."""

    exit_code: ClassVar[int] = 1


class RunError(SpmdError):
    """A failure while running: lost rank, deadlock, out of memory."""

    exit_code: ClassVar[int] = 3


class CollectiveTimeoutError(RunError):
    """A collective whose group never met; names the missing members."""
