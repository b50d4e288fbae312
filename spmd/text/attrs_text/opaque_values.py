"""Values that are checked as XLA checks them and stored as they are written: nothing here computes with them."""

from __future__ import annotations

import re
from collections.abc import Callable

from spmd.ops.attrs import DOT_ALGORITHMS
from spmd.text.lexer import Scanner
from spmd.text.sharding.sharding_text import read_sharding

_WORD = re.compile(r"[\w.\-]++")
_SIDES = ("entry", "exit")


def _one_of(what: str, allowed: tuple[str, ...]) -> Callable[[Scanner], str]:
    def read(scanner: Scanner) -> str:
        found = scanner.need(_WORD, what)
        if found.group() not in allowed:
            listed = ", ".join(allowed)
            scanner.fail(f"{what} is one of {listed}, found {found.group()!r}", found.start())
        return found.group()

    return read


def read_algorithm(scanner: Scanner) -> str:
    """Read the algorithm of a product, in upper or lower case. Returns "" for ``unset``."""
    found = scanner.need(_WORD, "an algorithm")
    word = found.group().lower()
    if word not in ("unset", *DOT_ALGORITHMS):
        scanner.fail(f"unknown algorithm {found.group()!r} of a product", found.start())
    return "" if word == "unset" else word


def _integer(scanner: Scanner) -> str:
    return str(scanner.integer())


def read_domain(scanner: Scanner) -> str:
    """Read ``{kind="sharding", entry={maximal device=0}, exit={replicated}}``, in any order; commas may be left out."""
    start = scanner.skip_space()
    seen: list[str] = []
    scanner.expect("{")
    while not scanner.peek("}"):
        if seen:
            scanner.consume_if(",")
        found = scanner.need(_WORD, "kind, entry or exit")
        seen.append(found.group())
        scanner.expect("=")
        if found.group() in _SIDES:
            read_sharding(scanner)
        elif found.group() != "kind" or scanner.string() != "sharding":
            scanner.fail('a domain has kind="sharding", an entry and an exit', found.start())
    scanner.expect("}")
    if sorted(seen) != sorted(("kind", *_SIDES)):
        scanner.fail('a domain has kind="sharding", an entry and an exit', start)
    return scanner.text[start : scanner.pos]


#: Readers by attribute. Any other opaque value is a group in braces, or a word.
OPAQUE_VALUES: dict[str, Callable[[Scanner], str]] = {
    "batch_group_count": _integer,
    "convolution_kind": _one_of("a convolution's kind", ("unset", "fprop", "dgrad", "wgrad")),
    "feature_group_count": _integer,
    "padding_type": _one_of("a padding type", ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")),
}
