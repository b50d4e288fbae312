"""Shapes in text: ``f32[8,16]{1,0}``, tuples, tokens, bounded dynamic dimensions, layouts with tiles."""

from __future__ import annotations

import re

from spmd.shape import ArrayShape, Layout, OpaqueShape, PrimitiveType, Shape, TokenShape, TupleShape
from spmd.text.lexer import MAX_NESTING, Scanner

PRIMITIVE_TYPES = {kind.value: kind for kind in PrimitiveType}
#: Words that cannot be names.
RESERVED = frozenset({*PRIMITIVE_TYPES, "ENTRY", "HloModule", "ROOT"})
#: Largest dimension size: sizes are 64-bit in XLA.
MAX_SIZE = 2**63 - 1

_SIMPLE = re.compile(
    r"([a-z][a-z0-9]*+)\[((?:[0-9]{1,19}(?:,[0-9]{1,19})*+)?)\]"
    r"(?:\{((?:[0-9]{1,3}(?:,[0-9]{1,3})*+)?)\}|(?!\s*+\{\s*+[0-9:]))(?![\w{(])"
)
_TYPE = re.compile(r"[a-z][a-z0-9]*+(?=\s*+[\[(])")
_DIM = re.compile(r"(<=)?\s*+([0-9]++)|\?")
#: A brace after a blank opens a layout only before a number or a colon, else a literal or a body.
_LAYOUT_NEXT = re.compile(r"\{(?=\s*+(?:-?[0-9]|:))|(?<=\])\{(?=\s*+(?:\}|/\*))")
_LAYOUT_SUFFIX = re.compile(r"[^{}\"]*+")
#: Parts a layout may hold after its order: tiles, tail padding, element size, memory space, split, metadata prefix.
_SUFFIX = re.compile(
    r"(?:\([\d,*\s]*+\)|[TLESM]\([\d,*\s]*+\)|SC\([\d:,\s]*+\)|#\(\w+\)|\*\(\w+\))++"
)


class ShapeReader:
    """Reads shapes; equal texts give the same object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Shape] = {}

    def of_text(self, text: str) -> Shape | None:
        """The shape that is all of ``text`` if it was met before or is a plain array, else None."""
        known = self._known.get(text)
        if known is not None:
            return known
        found = _SIMPLE.fullmatch(text)
        if found is None:
            return None
        shape = _plain_array(found)
        if shape is not None:
            self._known[text] = shape
        return shape

    def remember(self, text: str, shape: Shape) -> None:
        self._known[text] = shape

    def read(self, scanner: Scanner, depth: int = 0) -> Shape:
        """The shape at the scanner's place. HloParseError when there is none."""
        if depth > MAX_NESTING:
            scanner.fail(f"shapes are nested deeper than {MAX_NESTING}")
        if scanner.take("("):
            return self._tuple(scanner, depth)
        found = scanner.match(_SIMPLE)
        if found is not None:
            text = found.group()
            shape = self.of_text(text)
            if shape is not None:
                return shape
            scanner.pos = found.start()
        return _general_array(scanner)

    def _tuple(self, scanner: Scanner, depth: int) -> Shape:
        elements: list[Shape] = []
        while not scanner.take(")"):
            if elements:
                scanner.expect(",")
            elements.append(self.read(scanner, depth + 1))
        return TupleShape(tuple(elements))


def _plain_array(found: re.Match[str]) -> Shape | None:
    """An array shape from a match of ``_SIMPLE``, None where the general reader must judge it."""
    kind = PRIMITIVE_TYPES.get(found[1])
    if kind is None:
        return None
    dims = tuple(map(int, found[2].split(","))) if found[2] else ()
    order = found[3]
    if order is None:
        layout = None
    else:
        minor_to_major = tuple(map(int, order.split(","))) if order else ()
        if sorted(minor_to_major) != list(range(len(dims))):
            return None
        layout = Layout(minor_to_major) if dims else None
    if any(size > MAX_SIZE for size in dims):
        return None
    return ArrayShape(kind, dims, layout)


def _general_array(scanner: Scanner) -> Shape:
    scanner.skip_space()
    start = scanner.pos
    name = scanner.need(_TYPE, "a shape").group()
    if name == "b" and scanner.peek("("):
        scanner.fail("buffer types are not supported", start)
    dims, dynamic = _dimensions(scanner)
    if name == "token" or name == "opaque":
        if dims:
            scanner.fail(f"{name} has no dimensions", start)
        if scanner.peek("{"):
            scanner.balanced()
        return TokenShape() if name == "token" else OpaqueShape()
    kind = PRIMITIVE_TYPES.get(name)
    if kind is None:
        scanner.fail(f"unknown element type {name!r}", start)
    layout = _layout(scanner, len(dims))
    if not dims and layout is not None and not layout.suffix:
        layout = None
    return ArrayShape(kind, dims, layout, dynamic if any(dynamic) else ())


def _dimensions(scanner: Scanner) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    scanner.expect("[")
    dims: list[int] = []
    dynamic: list[bool] = []
    while not scanner.take("]"):
        if dims:
            scanner.expect(",")
        found = scanner.need(_DIM, "a dimension size")
        if found.group() == "?":
            scanner.fail("unbounded dynamic dimensions are not supported", found.start())
        size = int(found[2]) if len(found[2]) < 20 else MAX_SIZE + 1
        if size > MAX_SIZE:
            scanner.fail("dimension size is too large", found.start())
        dims.append(size)
        dynamic.append(found[1] is not None)
    return tuple(dims), tuple(dynamic)


def _layout(scanner: Scanner, rank: int) -> Layout | None:
    """``{1,0:T(8,128)S(1)}``; None when no layout stands here."""
    found = scanner.match(_LAYOUT_NEXT)
    if found is None:
        return None
    start = found.start()
    order: list[int] = []
    while not (scanner.peek("}") or scanner.peek(":")):
        if order:
            scanner.expect(",")
        order.append(scanner.integer("a dimension number"))
    suffix = ""
    if scanner.take(":"):
        begin = scanner.pos
        text = scanner.need(_LAYOUT_SUFFIX, "a layout")
        suffix = "".join(text.group().split())
        if suffix and not _SUFFIX.fullmatch(suffix):
            scanner.fail(f"layout has an unknown part {suffix!r}", begin)
    scanner.expect("}")
    if order and sorted(order) != list(range(rank)):
        scanner.fail(f"layout is no permutation of {rank} dimensions", start)
    if rank and not order:
        scanner.fail(f"layout has 0 dimensions, the shape has {rank}", start)
    return Layout(tuple(order), suffix)


def parse_shape(text: str) -> Shape:
    """The shape that is all of ``text``."""
    scanner = Scanner.of(text)
    shape = ShapeReader().read(scanner)
    scanner.finish()
    return shape
