"""The attributes of one instruction while they are read: names, extents in the text, typed access."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar, cast

from spmd.lazy_dataclass import dataclass
from spmd.shape import Shape
from spmd.text.attrs_text.opaque_values import OPAQUE_VALUES
from spmd.text.lexer import STRING, Scanner, Source
from spmd.text.names import read_name

T = TypeVar("T")
_PLAIN_INTS = re.compile(r"\{(?:[0-9]{1,19}(?>(?:,[0-9]{1,19})*))?\}")
#: A value without brackets: ``PADDING_SAME``, ``b01f_01io->b01f``, a string.
_BARE = re.compile(rf"(?:{STRING.pattern})|[^\s,(){{}}\[\]\"']++")
_PRECISIONS = ("default", "high", "highest")
_WORD = re.compile(r"[\w.\-]++")
_FLOAT = re.compile(r"[+-]?(?:\d++\.?\d*+(?:[eE][+-]?\d++)?|\.\d++(?:[eE][+-]?\d++)?|inf|nan)")


@dataclass(frozen=True, slots=True)
class Callee:
    """A computation an attribute names, or the extent of a body that stands inline."""

    name: str
    start: int
    end: int
    inline: bool = False


class AttrValues:
    """Attributes by name; each reader takes what it knows, and what is left over is unknown.

    ``known`` holds what texts of an attribute were read as before.
    ``shape`` is the result shape, ``parentheses`` the extent between the operand parentheses: parameter numbers and
    literals stand there.
    """

    __slots__ = (
        "_extents",
        "_known",
        "callees",
        "opcode",
        "parentheses",
        "shape",
        "source",
        "start",
    )

    def __init__(
        self,
        source: Source,
        start: int,
        opcode: str,
        extents: dict[str, tuple[int, int]],
        shape: Shape | None,
        parentheses: tuple[int, int],
        known: dict[tuple[str, str], object],
    ) -> None:
        self.source = source
        self.start = start
        self.opcode = opcode
        self.shape = shape
        self.parentheses = parentheses
        self.callees: list[Callee] = []
        self._extents = extents
        self._known = known

    # ---- access
    def __contains__(self, name: str) -> bool:
        return name in self._extents

    def pop(self, name: str) -> Scanner | None:
        """Return a scanner over the value, and count the attribute as read. Returns None if it is absent."""
        extent = self._extents.pop(name, None)
        return None if extent is None else Scanner(self.source, *extent)

    def need(self, name: str) -> Scanner:
        scanner = self.pop(name)
        if scanner is None:
            self.fail(f"{self.opcode} needs the attribute {name}=")
        return scanner

    def verbatim(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Return the attributes among ``names`` that are present, as (name, text), read by ``OPAQUE_VALUES``."""
        return tuple(
            (name, self.read(name, OPAQUE_VALUES.get(name, _verbatim), ""))
            for name in names
            if name in self._extents
        )

    def read(self, name: str, reader: Callable[[Scanner], T], default: T) -> T:
        """Return the result of ``reader``, which must read the entire value; ``default`` if the attribute is absent."""
        scanner = self.pop(name)
        return default if scanner is None else scanner.entire(reader)

    def read_known(self, name: str, reader: Callable[[Scanner], T], default: T) -> T:
        """Do as ``read``, and cache the result by the value's text."""
        extent = self._extents.get(name)
        if extent is None:
            return default
        key = (name, self.source.text[extent[0] : extent[1]])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.need_read(name, reader)
        else:
            del self._extents[name]
        return cast(T, known)  # the value that `reader` made of the same text

    def need_read(self, name: str, reader: Callable[[Scanner], T]) -> T:
        return self.need(name).entire(reader)

    # ---- common kinds: the usual spelling is read from the text, any other is scanned
    def ints(self, name: str) -> tuple[int, ...]:
        """Read ``{0,1}``; () if it is absent."""
        extent = self._extents.get(name)
        if extent is None:
            return ()
        text = self.source.text[extent[0] : extent[1]]
        if _PLAIN_INTS.fullmatch(text) is None:
            return self.need_read(name, Scanner.integers)
        del self._extents[name]
        return tuple(map(int, text[1:-1].split(","))) if len(text) > 2 else ()

    def need_ints(self, name: str) -> tuple[int, ...]:
        if name not in self._extents:
            self.need(name)
        return self.ints(name)

    def integer(self, name: str, default: int) -> int:
        extent = self._extents.get(name)
        if extent is None:
            return default
        text = self.source.text[extent[0] : extent[1]]
        if not (text.isdigit() and text.isascii() and len(text) < 20):
            return self.need_read(name, Scanner.integer)
        del self._extents[name]
        return int(text)

    def need_integer(self, name: str) -> int:
        if name not in self._extents:
            self.need(name)
        return self.integer(name, 0)

    def flag(self, name: str) -> bool:
        return self.read_known(name, Scanner.boolean, default=False)

    def flags(self, name: str) -> tuple[bool, ...]:
        """Read ``{true,false}``."""
        return self.read(name, Scanner.booleans, ())

    def word(self, name: str) -> str:
        return self.read(name, _word, "")

    def need_word(self, name: str, allowed: tuple[str, ...], *, ignore_case: bool = False) -> str:
        """Return one of ``allowed``, which are in lower case if case is ignored."""
        scanner = self.need(name)
        found = scanner.need(_WORD, "a word")
        word = found.group().lower() if ignore_case else found.group()
        if word not in allowed:
            scanner.fail(
                f"{name} is one of {', '.join(allowed)}, found {found.group()!r}", found.start()
            )
        scanner.finish()
        return word

    def precisions(self) -> tuple[str, ...]:
        """Read ``operand_precision={high,default}``, in upper or lower case."""
        return self.read("operand_precision", _precisions, ())

    def string(self, name: str) -> str:
        return self.read(name, Scanner.string, "")

    # ---- computations
    def callee(self, name: str) -> None:
        """Read the name (or text) of one computation, which is the next of the called computations."""
        self.callees.append(self.need_read(name, _callee))

    def callee_list(self, name: str) -> None:
        """Read ``{f, g}``."""
        self.callees += self.need_read(name, _callees)

    # ---- errors
    def fail(self, message: str) -> NoReturn:
        raise self.source.error(message, self.start)

    def refuse_rest(self) -> None:
        """Raise HloParseError if there is an attribute that was not read."""
        for name, (start, _) in self._extents.items():
            at = max(self.source.text.rfind(name, 0, start), 0)
            raise self.source.error(f"unknown attribute {name!r} of {self.opcode}", at)


def _callee(scanner: Scanner) -> Callee:
    if scanner.peek("{"):
        start, end = scanner.balanced()
        return Callee("", start, end, inline=True)
    name, start = read_name(scanner, "a computation's name")
    return Callee(name, start, start + len(name))


def _callees(scanner: Scanner) -> list[Callee]:
    return [_callee(scanner) for _ in scanner.items()]


def _verbatim(scanner: Scanner) -> str:
    if scanner.peek("{"):
        start, end = scanner.balanced()
        return scanner.text[start:end]
    return scanner.need(_BARE, "a value").group()


def _word(scanner: Scanner) -> str:
    return scanner.need(_WORD, "a word").group()


def _precisions(scanner: Scanner) -> tuple[str, ...]:
    values: list[str] = []
    for _ in scanner.items():
        found = scanner.need(_WORD, "a precision")
        if found.group().lower() not in _PRECISIONS:
            scanner.fail(
                f"a precision is one of {', '.join(_PRECISIONS)}, found {found.group()!r}",
                found.start(),
            )
        values.append(found.group().lower())
    return tuple(values)


def read_number(scanner: Scanner) -> float:
    return float(scanner.need(_FLOAT, "a number").group())
