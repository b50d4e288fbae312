"""Functions of an LLVM module as text: those that loops over elements call, and their vector variants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from runtime.codegen.elements.variants import LANES, VARIANTS
from spmd.lazy_dataclass import dataclass

TYPE = re.compile(r"(?<![%@.\w])(?:i\d+|half|bfloat|float|double)\b")
LINE = re.compile(r"(%[\w.]+) = (\w+) (.*)")
_DEFINED = re.compile(r"define (?:internal |weak )?(.+?) @([\w.]+)\((.*?)\)(.*)\{$")
_CALLED = re.compile(r"call [^@]*@([\w.]+)\(")
#: Operations that do not count as computing.
_FREE = frozenset(("insertvalue", "extractvalue", "bitcast", "getelementptr", "load"))
#: Operations that take many cycles, for a vector about as many as for a scalar.
_SLOW_OPERATION = re.compile(r" = (?:fdiv|frem|[su]div|[su]rem) |@llvm\.sqrt\.")


class NoVectorsError(Exception):
    """The vectorizer cannot rewrite a line of IR, which is the message."""


@dataclass(frozen=True)
class Function:
    """Function of a module. ``parameters`` are pairs of a type and a name.

    ``has_variants`` tells that the module already defines its vector variants.
    """

    text: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    is_inlined: bool
    has_variants: bool


@dataclass(frozen=True, slots=True)
class Needs:
    """Cost and requirements of lines of IR.

    ``weight`` is the number of computing lines, and ``slow`` the number of divisions and roots among them. ``size`` is
    the bytes of the largest number. ``any_lanes`` tells that vectors of any length are possible; otherwise only lengths
    are for which functions have variants.
    """

    weight: int
    size: int
    any_lanes: bool
    slow: int = 0

    def supports(self, lanes: int) -> bool:
        """Return whether vectors of ``lanes`` elements are possible."""
        return self.any_lanes or lanes in LANES


class Functions:
    """Functions of a module, and the vector variants that the vectorizer has made of them."""

    def __init__(self, lines: list[str]) -> None:
        self._of: dict[str, Function] = {}
        self._made: dict[str, str] = {}
        self._needs: dict[str, Needs] = {}
        at = 0
        while at < len(lines):
            if lines[at].startswith("define ") and (found := _DEFINED.match(lines[at])):
                end = lines.index("}", at)
                self._of[found[2]] = _function(found, lines[at : end + 1])
                at = end
            at += 1

    def called_by(self, lines: Iterable[str]) -> list[str]:
        """Return the texts of the inlined functions that ``lines`` call, directly or through other functions."""
        found: dict[str, str] = {}
        stack = [name for line in lines if "call " in line for name in _CALLED.findall(line)]
        while stack:
            name = stack.pop()
            own = self._of.get(name)
            text = self._made.get(name, own.text if own is not None and own.is_inlined else "")
            if text and name not in found:
                found[name] = text
                stack += _CALLED.findall(text)
        return list(found.values())

    def about(self, lines: Iterable[str]) -> Needs:
        """Return the cost and requirements of ``lines``, including the functions that they call."""
        weight, size, is_free, slow = 0, 1, True, 0
        for line in lines:
            called = _CALLED.findall(line) if "call " in line else ()
            if called and called[0] in self._of:
                needs = self._about(called[0])
                weight, size = weight + needs.weight, max(size, needs.size)
                is_free, slow = is_free and needs.any_lanes, slow + needs.slow
            elif (found := LINE.match(line.strip())) and found[2] not in _FREE:
                weight += 1
                slow += _SLOW_OPERATION.search(line) is not None
        return Needs(weight, size, is_free, slow)

    def _about(self, name: str) -> Needs:
        needs = self._needs.get(name)
        if needs is None:
            function = self._of[name]
            needs = Needs(1, 1, any_lanes=False)
            if not function.has_variants:
                needs = self.about(function.lines)
                sizes = map(size_of, set(TYPE.findall(function.text)))
                needs = replace(needs, size=max(needs.size, *sizes))
            self._needs[name] = needs
        return needs

    def named(self, name: str) -> Function:
        """Return the function ``name``. Raises NoVectorsError unless it is inlined or has vector variants."""
        function = self._of.get(name)
        if function is None or not (function.is_inlined or function.has_variants):
            raise NoVectorsError(name)
        return function

    def make(self, name: str, write: Callable[[], str]) -> None:
        """Define the function ``name`` as the text that ``write`` returns, unless it is already defined."""
        if name not in self._made:
            self._made[name] = write()


def _function(found: re.Match[str], lines: list[str]) -> Function:
    parameters = [tuple(p.rsplit(" ", 1)) for p in found[3].split(", ") if p]
    return Function(
        "\n".join(lines),
        found[1],
        tuple((t, name) for t, name in parameters),
        tuple(line.strip() for line in lines[1:-1] if line.strip()),
        "alwaysinline" in found[4] and lines[0].startswith("define internal"),
        VARIANTS in found[4],
    )


@cache
def size_of(element: str) -> int:
    """Return the bytes that an element of LLVM type ``element`` takes in memory."""
    bits = {"half": 16, "bfloat": 16, "float": 32, "double": 64}.get(element)
    return -(-(bits or int(element[1:])) // 8)


@cache
def vector(element: str, lanes: int) -> str:
    """Return the type of a vector of ``lanes`` elements; of a structure, the structure of such vectors."""
    return TYPE.sub(lambda m: f"<{lanes} x {m[0]}>", element)


def spread(element: str, lanes: int, value: str, name: str) -> list[str]:
    """Return lines that broadcast ``value``, of type ``element``, to the vector ``name``."""
    v = f"<{lanes} x {element}>"
    zeros = f"<{lanes} x i32> zeroinitializer"
    return [
        f"{name}.first = insertelement {v} poison, {element} {value}, i64 0",
        f"{name} = shufflevector {v} {name}.first, {v} poison, {zeros}",
    ]
