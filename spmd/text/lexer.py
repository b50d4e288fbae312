"""Scanning of HLO text: positions, white space and comments, balanced values, strings.

XLA's tokens depend on context (``3_1`` is padding, ``2x2`` a size list, ``b01f_01io->b01f`` dimension labels), so
there is no token stream: a ``Scanner`` matches patterns where it stands, and every error carries file, line, column.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from spmd.errors import HloParseError, SourceLocation
from spmd.limits import MAX_EXCERPT, MAX_IMPLIED, MAX_NESTING, MAX_ZEROS

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z_][\w.\-]*+", re.ASCII)
_WORD = re.compile(r"[\w.\-]++")
#: At most 19 digits; only literals have longer numbers.
INTEGER = re.compile(r"-?[0-9]{1,19}(?![0-9])")
#: C escapes: a letter, up to three octal digits, hexadecimal digits that make a byte, a code point.
_ESCAPES = (
    r"\\(?:[abfnrtv\\?'\"]|[0-3][0-7]{2}|[0-7]{1,2}(?![0-7])|[xX]0*+[0-9a-fA-F]{1,2}(?![0-9a-fA-F])"
    r"|(?:u|U0000)(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U000[1-9a-fA-F][0-9a-fA-F]{4}|U0010[0-9a-fA-F]{4})"
)
#: A string may run over line ends.
STRING = re.compile(
    rf'"[^"\\]*+(?>(?:{_ESCAPES}[^"\\]*+)*)"|\'[^\'\\]*+(?>(?:{_ESCAPES}[^\'\\]*+)*)\''
)
_SPACE = re.compile(r"(?>(?:\s++|/\*[^*]*+(?>(?:\*(?!/)[^*]*+)*)\*/|//[^\n\r]*+)*)")
_SPACE_STARTS = frozenset(" \t\n\r\v\f/")
_INTEGERS = re.compile(r"\s*+(?:-?[0-9]{1,19}(?>(?:,\s?-?[0-9]{1,19})*))?")
_BALANCE = re.compile(
    r"""[^(){}\[\]"'/]++ | (?P<open>[({\[]) | (?P<close>[)}\]])
      | "[^"\\]*+(?>(?:\\.[^"\\]*+)*)" | '[^'\\]*+(?>(?:\\.[^'\\]*+)*)'
      | /\*[^*]*+(?>(?:\*(?!/)[^*]*+)*)\*/ | //[^\n\r]*+ | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def _flat_groups(inner: str) -> str:
    return rf"\((?>{inner}*)\)|\{{(?>{inner}*)\}}|\[(?>{inner}*)\]"


#: Text inside a group with at most two levels of nested groups, which most values are.
_PLAIN = r"[^(){}\[\]\"'/]++"
_SHALLOW = re.compile(
    rf"(?>(?:{_PLAIN}|/\*[^*]*+(?>(?:\*(?!/)[^*]*+)*)\*/|{_flat_groups(f'(?:{_PLAIN}|{_flat_groups(_PLAIN[:-2])})')})+)"
)
_CLOSING = {"(": ")", "{": "}", "[": "]"}
#: Characters that would garble a terminal, or that a terminal cannot show.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


#: Text that an error quotes: a word, or the beginning of a very long one.
_FOUND = re.compile(r"[\w.\-%]{1,80}|.", re.DOTALL)


class Source:
    """A text with its name, for error places."""

    __slots__ = ("_implied", "_line_ends", "_zeros", "file", "text")

    def __init__(self, text: str, file: str = "<text>") -> None:
        self.text = text
        self.file = file
        self._line_ends: list[int] | None = None
        self._implied = 0
        self._zeros = 0

    def imply(self, count: int, what: str, pos: int) -> None:
        """Count values that the text at ``pos`` stands for without spelling them out; too many are an error there."""
        self._implied += count
        if self._implied > MAX_IMPLIED:
            raise self.error(f"{what}: the text implies more than {MAX_IMPLIED} values", pos)

    def imply_zeros(self, count: int, pos: int) -> None:
        """Count zeros that the text at ``pos`` stands for."""
        self._zeros += count
        if self._zeros > MAX_ZEROS:
            raise self.error(f"constants of the text imply more than {MAX_ZEROS} zeros", pos)

    def location(self, pos: int) -> SourceLocation:
        if self._line_ends is None:  # searched once: a text may have many errors
            self._line_ends = [found.start() for found in re.finditer("\n", self.text)]
        line = bisect_left(self._line_ends, pos)
        line_start = self._line_ends[line - 1] + 1 if line else 0
        return SourceLocation(self.file, line + 1, pos - line_start + 1)

    def line_at(self, pos: int) -> str:
        start = self.text.rfind("\n", 0, pos) + 1
        end = self.text.find("\n", pos)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")

    def error(self, message: str, pos: int) -> HloParseError:
        """Return an error at ``pos``. It shows a part of very long lines."""
        location = self.location(pos)
        line = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", self.line_at(pos))
        if len(line) <= MAX_EXCERPT:
            return HloParseError(message, location, line)
        start = max(0, location.column - 1 - MAX_EXCERPT // 2)
        excerpt = line[start : start + MAX_EXCERPT]
        return HloParseError(message, location, excerpt, caret=location.column - 1 - start)


class Scanner:
    """A position in ``source`` that moves from ``pos`` to ``end``."""

    __slots__ = ("end", "pos", "source", "text")

    def __init__(self, source: Source, pos: int = 0, end: int | None = None) -> None:
        self.source = source
        self.text = source.text
        self.pos = pos
        self.end = len(source.text) if end is None else end

    @staticmethod
    def of(text: str, file: str = "<text>") -> Scanner:
        return Scanner(Source(text, file))

    # ---- moving
    def skip_space(self) -> int:
        """Move past white space and comments. Returns the position there."""
        if self.pos < self.end and self.text[self.pos] not in _SPACE_STARTS:
            return self.pos
        found = _SPACE.match(self.text, self.pos, self.end)
        assert found is not None
        self.pos = found.end()
        if self.text.startswith("/*", self.pos, self.end):
            self.fail("comment without an end")
        return self.pos

    @property
    def at_end(self) -> bool:
        self.skip_space()
        return self.pos >= self.end

    def peek(self, wanted: str) -> bool:
        """Return whether ``wanted`` comes next (after white space)."""
        self.skip_space()
        return self.text.startswith(wanted, self.pos, self.end)

    def consume_if(self, wanted: str) -> bool:
        """Step over ``wanted`` if it comes next."""
        if not self.peek(wanted):
            return False
        self.pos += len(wanted)
        return True

    def expect(self, wanted: str) -> None:
        if not self.consume_if(wanted):
            self.fail(f"expected {wanted!r}, found {self.found()}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Step over ``pattern`` if it matches here (after white space)."""
        self.skip_space()
        found = pattern.match(self.text, self.pos, self.end)
        if found is not None:
            self.pos = found.end()
        return found

    def need(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = self.match(pattern)
        if found is None:
            if pattern is STRING and self.text.startswith(('"', "'"), self.pos, self.end):
                self.fail("a string without an end, or with an escape that C does not know")
            self.fail(f"expected {what}, found {self.found()}")
        return found

    # ---- values
    def name(self, what: str = "a name") -> str:
        """Read an identifier, with or without its ``%``."""
        self.consume_if("%")
        return self.need(NAME, what).group()

    def integer(self, what: str = "an integer") -> int:
        return int(self.need(INTEGER, what).group())

    def string(self, what: str = "a string") -> str:
        return unescape(self.need(STRING, what).group()[1:-1])

    def items(
        self, opening: str = "{", closing: str = "}", *, needs_commas: bool = True
    ) -> Iterator[None]:
        """Yield before each item of ``{a, b}``, which the caller reads then. ``opening`` is "" if it has been read."""
        self.expect(opening)
        is_first = True
        while not self.consume_if(closing):
            if not needs_commas:
                self.consume_if(",")
            elif not is_first:
                self.expect(",")
            is_first = False
            yield

    def boolean(self) -> bool:
        word = self.need(_WORD, "true or false")
        if word.group() not in ("true", "false"):
            self.fail(f"expected true or false, found {word.group()!r}", word.start())
        return word.group() == "true"

    def booleans(self) -> tuple[bool, ...]:
        """Read ``{true,false}``."""
        return tuple(self.boolean() for _ in self.items())

    def integers(self, opening: str = "{", closing: str = "}") -> tuple[int, ...]:
        """Read ``{1, 2}`` as (1, 2); commas are required between numbers."""
        self.expect(opening)
        plain = _INTEGERS.match(self.text, self.pos, self.end)
        if plain is not None and self.text.startswith(closing, plain.end(), self.end):
            self.pos = plain.end() + len(closing)
            inner = plain.group()
            return tuple(map(int, inner.split(","))) if inner.strip() else ()
        return tuple(self.integer() for _ in self.items("", closing))

    def balanced(self) -> tuple[int, int]:
        """Step over one bracketed group; returns its extent, brackets included."""
        start = self.skip_space()
        waiting: list[str] = []
        pos = start
        while pos < self.end:
            if waiting and len(waiting) + 2 <= MAX_NESTING:
                shallow = _SHALLOW.match(self.text, pos, self.end)
                if shallow is not None:
                    pos = shallow.end()
                    if pos >= self.end:
                        break
            found = _BALANCE.match(self.text, pos, self.end)
            assert found is not None
            pos = found.end()
            if found.lastgroup == "open":
                waiting.append(_CLOSING[found.group()])
                if len(waiting) > MAX_NESTING:
                    raise self.source.error(
                        f"brackets are nested deeper than {MAX_NESTING}", found.start()
                    )
            elif found.lastgroup == "close":
                wanted = repr(waiting.pop()) if waiting else "an opening bracket"
                if wanted != repr(found.group()):
                    raise self.source.error(
                        f"expected {wanted}, found {found.group()!r}", found.start()
                    )
                if not waiting:
                    self.pos = pos
                    return start, pos
            if not waiting:
                break
        wanted = repr(waiting[-1]) if waiting else "a bracket"
        raise self.source.error(f"expected {wanted} for what begins here, found the end", start)

    # ---- errors
    def found(self) -> str:
        self.skip_space()
        if self.pos >= self.end:  # the end of a value: quote the text after it
            rest = Scanner(self.source, self.pos)
            return "the end" if rest.at_end else rest.found()
        word = _FOUND.match(self.text, self.pos, self.end)
        return repr(word.group()) if word else "the end"

    def fail(self, message: str, pos: int | None = None) -> NoReturn:
        raise self.source.error(message, self.pos if pos is None else pos)

    def entire(self, read: Callable[[Scanner], T]) -> T:
        """Return what ``read`` makes of the text, which must be all of it."""
        value = read(self)
        self.finish()
        return value

    def finish(self) -> None:
        """Raise HloParseError unless the text ends here."""
        if not self.at_end:
            self.fail(f"expected the end, found {self.found()}")


_ESCAPE = re.compile(
    r"\\([xX][0-9a-fA-F]++|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unescape(text: str) -> str:
    """Undo C escapes. Bytes written as octal or hex escapes are UTF-8, as XLA writes non-ASCII text."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescape_one, text)
    if plain.isascii():
        return plain
    # Escaped bytes have become characters 128 to 255 (surrogate-escaped below), so the bytes are decoded.
    return plain.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _unescape_one(found: re.Match[str]) -> str:
    code = found.group(1)
    if code[0] in "xX" and len(code) > 1:
        return _byte(int(code[1:], 16) & 0xFF)
    if code[0] in "uU" and len(code) > 1:
        return chr(min(int(code[1:], 16), sys.maxunicode))
    if code[0] in "01234567":
        return _byte(int(code, 8) & 0xFF)
    return _ESCAPED.get(code, code)


def _byte(value: int) -> str:
    return chr(value) if value < 128 else chr(0xDC00 + value)


#: All characters except printable ASCII, and quotes and the backslash.
_TO_ESCAPE = re.compile(r"[^ !#-&(-\[\]-~]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def escape(text: str) -> str:
    """Escape quotes, backslashes and bytes outside printable ASCII (as octal) as XLA does, in C's notation."""
    return _TO_ESCAPE.sub(_escape_one, text) if _TO_ESCAPE.search(text) else text


def _escape_one(found: re.Match[str]) -> str:
    char = found.group()
    named = _NAMED.get(char)
    if named is not None:
        return named
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def quote(text: str) -> str:
    return f'"{escape(text)}"'
