"""Names in text: what may stand where, and names from elsewhere made into such."""

from __future__ import annotations

import re

from spmd.text.lexer import NAME, Scanner
from spmd.text.shape_text import TYPE_NAMES

#: Keywords, which can be names only after ``%``.
KEYWORDS = frozenset(
    {
        *("true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT"),
        *("FileLocations", "FileNames", "FunctionNames", "StackFrames"),
        *("maximal", "replicated", "manual", "unknown", "unreduced"),
        *("last_tile_dim_replicate", "shard_as", "shard_like"),
    }
)
#: Words that need the full grammar.
RESERVED = TYPE_NAMES | KEYWORDS

_NO_NAME = re.compile(r"[^A-Za-z0-9_.\-]|^[^A-Za-z_]", re.ASCII)


def read_name(scanner: Scanner, what: str, *, is_defined_here: bool = False) -> tuple[str, int]:
    """Read ``%name`` or ``name``. Returns the name and its position.

    Without ``%`` a word must not be reserved nor touch an ``=``, which makes it an attribute. As in XLA's lexer, a
    colon that touches it is part of the name.
    """
    start = scanner.skip_space()
    has_percent = scanner.consume_if("%")
    found = NAME.match(scanner.text, scanner.pos, scanner.end)
    if found is None:
        scanner.pos = start
        scanner.fail(f"expected {what}, found {scanner.found()}")
    name = found.group()
    scanner.pos = found.end()
    if has_percent:
        return name, found.start()
    if name in RESERVED:
        scanner.fail(f"{name!r} is a reserved word, not a name", start)
    if scanner.text.startswith("=", scanner.pos, scanner.end):
        if is_defined_here:
            scanner.fail(f"expected a blank between {name!r} and '='", scanner.pos)
        scanner.fail(f"expected {what}, found the attribute '{name}='", start)
    if scanner.text.startswith(":", scanner.pos, scanner.end):
        scanner.pos += 1
    return name, start


def written_name(name: str, *, percent: bool) -> str:
    """Return the name as it is printed: a reserved word needs its ``%``."""
    return f"%{name}" if percent or name in RESERVED else name


def sanitized(name: str) -> str:
    """Return a valid name: ``add:1`` becomes ``add_1``, ``f32`` ``_f32``, as in XLA (NameUniquer::GetSanitizedName).
    The name must not be empty.
    """
    clean = _NO_NAME.sub("_", name)
    return f"_{clean}" if clean in TYPE_NAMES else clean
