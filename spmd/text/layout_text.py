"""Layouts in text: ``{1,0:T(8,128)(2,1)S(1)}``."""

from __future__ import annotations

import re

from spmd.shape import Layout
from spmd.text.lexer import Scanner

#: A brace after a blank begins a layout only if a number or a colon follows. Otherwise it begins a literal or a body.
_LAYOUT_NEXT = re.compile(r"\{(?=\s*+(?:-?[0-9]|:))|(?<=\])\{(?=\s*+(?:\}|/\*))")
_TILE = r"\((?:(?:\d{1,19}|\*)(?>(?:,(?:\d{1,19}|\*))*))?\)"
_NUMBER = r"\(-?\d{1,19}\)"
_INDEX_TYPE = r"\([su](?:1|2|4|8|16|32|64)\)"
#: The parts after the colon, in XLA's order, each at most once: dimension level types, tiles, tail padding, index and
#: pointer types, element size, memory space, split configurations, metadata prefix.
_PARTS = re.compile(
    rf"(?P<levels>D\([DCSH]\+?~?(?>(?:,[DCSH]\+?~?)*)\))?(?:T(?:(?>(?:{_TILE})+)|(?!\()))?(?:L{_NUMBER})?"
    rf"(?:#{_INDEX_TYPE})?(?:\*{_INDEX_TYPE})?(?:E{_NUMBER})?(?:S{_NUMBER})?"
    rf"(?:SC(?>(?:\(-?\d{{1,19}}:(?:-?\d{{1,19}}(?>(?:,-?\d{{1,19}})*))?\))+))?(?:M{_NUMBER})?"
)
#: Syntax of one part, known or unknown.
_ANY_PART = re.compile(r"[A-Za-z#*]*+(?>(?:\([^(){}]*+\))*)")


def read_layout(scanner: Scanner, rank: int) -> Layout | None:
    """Return the layout of an array of that rank; None if none follows. The verifier checks that it is
    a permutation.
    """
    found = scanner.match(_LAYOUT_NEXT)
    if found is None:
        return None
    start = found.start()
    order: list[int] = []
    while not (scanner.peek("}") or scanner.peek(":")):
        if order:
            scanner.expect(",")
        order.append(scanner.integer("a dimension number"))
    has_parts = scanner.consume_if(":")
    suffix = _read_parts(scanner) if has_parts else ""
    scanner.expect("}")
    if order and len(order) != rank:
        found_order = ",".join(map(str, order))
        scanner.fail(f"expected a layout of {rank} dimensions, found {{{found_order}}}", start)
    if not order and not has_parts and not rank:
        scanner.fail("expected an opcode or a layout with a part, found '{}'", start)
    if rank and not order:
        scanner.fail(f"expected a layout of {rank} dimensions, found {{}}", start)
    return Layout(tuple(order), suffix)


def _read_parts(scanner: Scanner) -> str:
    """Read ``T(8,128)S(1)`` without spaces, up to the closing brace. XLA reads dimension level types and drops them."""
    start = scanner.skip_space()
    end = scanner.text.find("}", start, scanner.end)
    text = "".join(scanner.text[start : scanner.end if end < 0 else end].split())
    if "P(" in text:  # XLA reads it, but rejects it for every array
        scanner.fail("a physical shape belongs to a sparse array, and no array here is one", start)
    found = _PARTS.match(text)
    assert found is not None  # every part is optional
    if found.end() < len(text):
        part = _ANY_PART.match(text, found.end())
        word = part.group() if part is not None and part.group() else text[found.end() :]
        scanner.fail(f"layout has an unknown, repeated or misplaced part {word[:40]!r}", start)
    levels = found["levels"] or ""
    scanner.pos = scanner.end if end < 0 else end
    # For XLA, a T without tiles is one tile without dimensions.
    return re.sub(r"^T(?!\()", "T()", text[len(levels) :])
