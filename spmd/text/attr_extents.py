"""Extents of the attributes of an instruction or a module header: ``, name=value, name=value``."""

from __future__ import annotations

import re

from spmd.text.lexer import STRING, Scanner
from spmd.text.shape_text import ShapeReader
from spmd.text.sharding.mesh_text import read_mesh

Extents = dict[str, tuple[int, int]]

_QUOTED = r'"[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"|\'[^\'\\\n]*+(?>(?:\\.[^\'\\\n]*+)*)\''


def nested_pattern(opening: str, closing: str, depth: int) -> str:
    """Return a pattern of brackets nested up to ``depth`` times on one line. It skips strings and allows only XLA's
    comments ``/*index=5*/``.
    """
    plain = rf"[^\{opening}\{closing}\"'/\n]*+"
    other = rf"{_QUOTED}|/(?![/*])|/\*index=\d++\*/"
    pattern = rf"\{opening}{plain}(?>(?:(?:{other}){plain})*)\{closing}"
    for _ in range(depth):
        pattern = rf"\{opening}{plain}(?>(?:(?:{other}|{pattern}){plain})*)\{closing}"
    return pattern


_WORD = r"[^\s,{}()\[\]\"']++"
_BRACKETED = "|".join(
    (nested_pattern("{", "}", 5), nested_pattern("(", ")", 2), nested_pattern("[", "]", 0))
)
_CHUNK = f"{_WORD}|{_QUOTED}|{_BRACKETED}"
_MESH = r"mesh\[[^\]\n]*+\](?:,?\s*+device_ids=\([^()\n]*+(?>(?:\([^()\n]*+\)[^()\n]*+)*)\))?\s*+\{[^}\n]*+\}"
#: One attribute and the separator after it. The scanner reads ``literal=`` (a shape, a blank, a value).
_ATTR = re.compile(
    rf"(?!literal=)([A-Za-z_][\w\-]*+)=({_MESH}|(?>(?:{_CHUNK})+))(?:,\s++(?=[A-Za-z_])|\Z|(?=\s*+\Z))"
)
_ATTR_NAME = re.compile(r"([A-Za-z_][\w\-]*+)=")
#: A name that is directly followed by ``=`` can only be an attribute.
_GLUED = re.compile(r"[A-Za-z_][\w\-]*+=")
_CHUNK_HEAD = re.compile(r"[^\s,{}()\[\]\"']++")


def split_line(text: str, start: int) -> Extents | None:
    """Return the extents of the attributes in ``text``, which begins at ``start`` of the source; None if it may contain
    anything else.
    """
    extents: Extents = {}
    pos = 0
    end = len(text)
    while pos < end:
        found = _ATTR.match(text, pos)
        if found is None:
            return extents if text[pos:].isspace() and extents else None
        name = found.group(1)
        if name in extents:
            return None
        extents[name] = (start + found.start(2), start + found.end(2))
        pos = found.end()
    return extents


def scan_attributes(scanner: Scanner) -> Extents:
    """Return the extents of the attributes from ``, name=value`` on; comments and line ends may stand anywhere."""
    extents: Extents = {}
    while scanner.consume_if(","):
        found = scanner.need(_ATTR_NAME, "an attribute")
        name = found.group(1)
        if name in extents:
            scanner.fail(f"attribute {name!r} is given twice", found.start())
        start = scanner.skip_space()
        _scan_value(scanner, name)
        extents[name] = (start, scanner.pos)
    if scanner.match(_GLUED) is not None:
        scanner.fail("expected ',' before an attribute", scanner.pos - 1)
    return extents


def _scan_value(scanner: Scanner, name: str) -> None:
    if name == "literal":
        _scan_literal(scanner)
    elif name == "replica_groups" and scanner.peek("mesh"):
        read_mesh(scanner)
        scanner.skip_space()
        scanner.balanced()
    else:
        _scan_chunks(scanner)


def _scan_literal(scanner: Scanner) -> None:
    if scanner.peek("("):
        scanner.balanced()
        return
    ShapeReader().read(scanner)
    scanner.skip_space()
    _scan_chunks(scanner)


def _scan_chunks(scanner: Scanner) -> None:
    """Move past words, strings and bracket groups without space between them; ``<=`` and ``T(`` of an iota may have
    space around them.
    """
    start = scanner.pos
    while scanner.pos < scanner.end:
        char = scanner.text[scanner.pos]
        if char in "{([":
            scanner.balanced()
        elif char in "\"'":
            scanner.need(STRING, "a string")
        elif (found := _CHUNK_HEAD.match(scanner.text, scanner.pos, scanner.end)) is not None:
            scanner.pos = found.end()
            if found.group().endswith(("<=", "->")):
                scanner.skip_space()
        else:
            before = scanner.pos
            scanner.skip_space()
            if not (scanner.pos > before and scanner.text.startswith(("<=", "->"), scanner.pos)):
                scanner.pos = before
                break
    if scanner.pos == start:
        scanner.fail(f"expected a value, found {scanner.found()}")
