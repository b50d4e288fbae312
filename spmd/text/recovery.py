"""Go on after an error: several errors in one reading, and none that only follows from an earlier one.

b = f32[2] frobnicate(a)      reported: unknown opcode 'frobnicate'
c = f32[2] negate(b)          skipped: it needs b, which could not be read
d = f32[2] negate(z)          reported: no instruction 'z' is defined before this one
"""

from __future__ import annotations

import re

from spmd.errors import HloParseError
from spmd.limits import MAX_ERRORS, MAX_LOOKAHEAD, MAX_SKIPPED
from spmd.text.lexer import Scanner

#: Beginning of an instruction, of the end of a body, or (at the left margin) of a computation.
_LINE = re.compile(
    r"\n(?:[ \t]*+(?=(?:ROOT\s++)?%?[A-Za-z_][\w.\-]*+\s++=\s|\})|(?=(?:ENTRY\s++)?%?[A-Za-z_][\w.\-]*+ [^\n=]*\{))"
)
#: Beginning of a computation: its name is at the left margin, its brace at the end of the line.
_HEAD = re.compile(r"^(?:ENTRY\s++)?%?(?P<name>[A-Za-z_][\w.\-]*+)[^\n=]*\{[ \t\r]*$", re.MULTILINE)
_NAME = re.compile(r"\s*+(?:ROOT\s++)?%?([A-Za-z_][\w.\-]*+)")
_BRACKETS = re.compile(
    r"""[({\[]|[)}\]]|"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"|'[^'\\\n]*+(?>(?:\\.[^'\\\n]*+)*)'"""
)


class MissingNameError(HloParseError):
    """A name without a definition before its use; ``name`` tells whether that follows from an earlier error."""

    name = ""


class Recovery:
    """The errors of one reading, and the names that could not be defined because of them."""

    def __init__(self) -> None:
        self.errors: list[HloParseError] = []
        self.is_over = False
        self._skipped = 0
        self._lost: set[str] = set()

    def report(self, error: HloParseError) -> None:
        """Keep the error, unless it only follows from an earlier one. Raises all of them when they are too many."""
        self._skipped += 1
        if not (isinstance(error, MissingNameError) and error.name in self._lost):
            self.errors.append(error)
        if len(self.errors) >= MAX_ERRORS or self._skipped >= MAX_SKIPPED:
            self.finish()

    def lose(self, name: str) -> None:
        """Record that ``name`` has no definition because of an error, so that its uses are not reported."""
        self._lost.add(name)

    def finish(self) -> None:
        """Raise what was found."""
        if self.errors:
            self.is_over = True
            raise HloParseError.all_of(self.errors)


def skip_instruction(scanner: Scanner, start: int) -> str:
    """Move behind the instruction that begins at ``start`` and has an error; its name, "" if it has none.

    That is the first line outside all of its brackets that begins another one. Where a bracket is what is missing, it
    is the first such line at all.
    """
    text, end = scanner.text, min(scanner.end, start + MAX_LOOKAHEAD)
    named = _NAME.match(text, start, end)
    first = 0
    depth, pos = 0, start
    line: re.Match[str] | None
    for line in _LINE.finditer(text, start + 1, end):
        depth += _depth(text, pos, line.start())
        pos = line.start()
        first = first or line.end()
        if depth <= 0:
            first = line.end()
            break
        if text.startswith("\n}", pos):
            break
    if (
        not first
        and end < scanner.end
        and (line := _LINE.search(text, end, scanner.end)) is not None
    ):
        first = line.end()
    scanner.pos = first or scanner.end
    return named.group(1) if named is not None else ""


def _depth(text: str, start: int, end: int) -> int:
    """Return the number of brackets opened minus the number closed."""
    depth = 0
    for found in _BRACKETS.finditer(text, start, end):
        bracket = found.group()
        depth += 1 if bracket in "({[" else -1 if bracket in ")}]" else 0
    return depth


def skip_computation(scanner: Scanner, start: int) -> str:
    """Move to the head of the next computation behind ``start``; the name in the head that was skipped, "" if none."""
    skipped = _HEAD.match(scanner.text, start, scanner.end)
    following = _HEAD.search(scanner.text, start + 1, scanner.end)
    scanner.pos = scanner.end if following is None else following.start()
    return "" if skipped is None else skipped["name"]


def begins_computation(scanner: Scanner) -> str:
    """Return the name of the computation whose head starts at the margin here, "" if none does."""
    scanner.skip_space()
    at_margin = scanner.pos == 0 or scanner.text[scanner.pos - 1] == "\n"
    found = _HEAD.match(scanner.text, scanner.pos, scanner.end) if at_margin else None
    return "" if found is None else found["name"]
