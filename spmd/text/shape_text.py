"""Shapes in text: ``f32[8,16]{1,0}``, tuples, tokens, bounded dynamic dimensions, layouts with tiles."""

from __future__ import annotations

import re

from spmd.errors import ShapeError
from spmd.limits import MAX_NESTING, MAX_RANK, MAX_SIZE
from spmd.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    PrimitiveType,
    Shape,
    TokenShape,
    TupleShape,
)
from spmd.text.layout_text import read_layout
from spmd.text.lexer import Scanner

PRIMITIVE_TYPES = {kind.value: kind for kind in PrimitiveType}
#: Words that begin a shape.
TYPE_NAMES = frozenset({*PRIMITIVE_TYPES, "token", "opaque"})

_SIMPLE = re.compile(
    r"([a-z][a-z0-9]*+)\[((?:[0-9]{1,19}(?>(?:,[0-9]{1,19})*))?)\]"
    r"(?:\{((?:[0-9]{1,3}(?>(?:,[0-9]{1,3})*))?)\}|(?!\s*+\{\s*+[0-9:]))(?![\w{(])"
)
_TYPE = re.compile(r"[a-z][a-z0-9]*+(?=\s*+[\[(])")
_BUFFER_NEXT = re.compile(r"b\s*+\(")
_DIM = re.compile(r"(<=)?\s*+([0-9]++)|\?")


class ShapeReader:
    """Reader of shapes; equal texts give the same object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Shape] = {}

    def of_text(self, text: str) -> Shape | None:
        """Return the shape that is all of ``text`` if it was read before or is a plain array, else None."""
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

    def record(self, text: str, shape: Shape) -> None:
        self._known[text] = shape

    def read(self, scanner: Scanner, depth: int = 0) -> Shape:
        """Read the shape at the scanner's position. Raises HloParseError if there is none."""
        if depth > MAX_NESTING:
            scanner.fail(f"shapes are nested deeper than {MAX_NESTING}")
        if scanner.peek("("):
            return self._tuple(scanner, depth)
        found = scanner.match(_SIMPLE)
        if found is not None:
            text = found.group()
            shape = self.of_text(text)
            if shape is not None:
                return shape
            scanner.pos = found.start()
        if scanner.match(_BUFFER_NEXT) is not None:
            return self._buffer(scanner, depth)
        return _general_array(scanner)

    def _buffer(self, scanner: Scanner, depth: int) -> Shape:
        """Read ``b(f32[4]{0})``: exactly one array."""
        start = scanner.pos
        array = self.read(scanner, depth + 1)
        if not isinstance(array, ArrayShape):
            scanner.fail(f"a buffer holds an array, found {array}", start)
        scanner.expect(")")
        return BufferShape(array)

    def _tuple(self, scanner: Scanner, depth: int) -> Shape:
        start = scanner.pos
        elements = tuple(self.read(scanner, depth + 1) for _ in scanner.items("(", ")"))
        try:
            return TupleShape(elements)
        except ShapeError as error:
            scanner.fail(str(error), start)


def _plain_array(found: re.Match[str]) -> Shape | None:
    """Return an array shape from a match of ``_SIMPLE``; None if the general reader must decide."""
    kind = PRIMITIVE_TYPES.get(found[1])
    if kind is None:
        return None
    dims = tuple(map(int, found[2].split(","))) if found[2] else ()
    order = found[3]
    if order is None:
        layout = None
    else:
        minor_to_major = tuple(map(int, order.split(","))) if order else ()
        if not dims or sorted(minor_to_major) != list(range(len(dims))):
            return None
        layout = Layout(minor_to_major)
    if len(dims) > MAX_RANK or any(size > MAX_SIZE for size in dims):
        return None
    return ArrayShape(kind, dims, layout)


def _general_array(scanner: Scanner) -> Shape:
    start = scanner.skip_space()
    name = scanner.need(_TYPE, "a shape").group()
    dims, dynamic = _dimensions(scanner)
    if name == "token" or name == "opaque":
        if dims:
            scanner.fail(f"{name} has no dimensions", start)
        return TokenShape() if name == "token" else OpaqueShape()
    kind = PRIMITIVE_TYPES.get(name)
    if kind is None:
        scanner.fail(f"unknown element type {name!r}", start)
    layout = read_layout(scanner, len(dims))
    if not dims and layout is not None and not layout.suffix:
        layout = None
    return ArrayShape(kind, dims, layout, dynamic if any(dynamic) else ())


def _dimensions(scanner: Scanner) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    dims: list[int] = []
    dynamic: list[bool] = []
    for _ in scanner.items("[", "]"):
        found = scanner.need(_DIM, "a dimension size")
        if len(dims) == MAX_RANK:
            scanner.fail(f"an array has at most {MAX_RANK} dimensions", found.start())
        if found.group() == "?":
            dims.append(UNBOUNDED)
            dynamic.append(True)
            continue
        size = int(found[2]) if len(found[2]) < 20 else MAX_SIZE + 1
        if size > MAX_SIZE:
            scanner.fail(f"expected a dimension size of at most {MAX_SIZE}", found.start())
        dims.append(size)
        dynamic.append(found[1] is not None)
    return tuple(dims), tuple(dynamic)


def parse_shape(text: str) -> Shape:
    """Return the shape that is all of ``text``."""
    return Scanner.of(text).entire(ShapeReader().read)
