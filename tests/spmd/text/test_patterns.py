"""No pattern repeats a group possessively: Python 3.11.0 to 3.11.4, Debian 12's among them, match it wrongly.

An atomic group around a greedy repetition means the same and is matched rightly by all (CPython issue 106052).
Possessive repetitions of a single character are right everywhere.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from tests.paths import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("spmd", "partitioner", "collectives", "runtime", "launch")
    for path in sorted((ROOT / package).rglob("*.py"))
    if re.search(r"^[^#\n]*\bre\.compile\(", path.read_text("utf-8"), re.MULTILINE)
]


def patterns(value: object) -> Iterator[str]:
    if isinstance(value, re.Pattern):
        yield value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin-1")
    elif isinstance(value, dict):
        for held in value.values():
            yield from patterns(held)
    elif isinstance(value, tuple | list):
        for held in value:
            yield from patterns(held)


#: An escape, a class of characters, or any other character of a pattern.
ITEM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
POSSESSIVE = re.compile(r"(?:[*+?]|\{[0-9,]*\})\+")


def repeats_a_group_possessively(pattern: str) -> bool:
    """Return whether a quantifier of ``pattern`` that ends in + follows a group: there alone the fault lies."""
    return any(
        item.group() == ")" and POSSESSIVE.match(pattern, item.end()) is not None
        for item in ITEM.finditer(pattern)
    )


@pytest.mark.parametrize("module", MODULES)
def test_no_group_is_repeated_possessively(module: str) -> None:
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs {error.name}")
    found = [text for value in vars(loaded).values() for text in patterns(value)]
    assert not [text for text in found if repeats_a_group_possessively(text)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"(?:ab)*+c", True),
        (r"(a|b){2,3}+", True),
        (r"(?:ab)*c\)++[)]++[^)]?+", False),
        (r"(?>(?:ab)*)c*+", False),
        (r"[()]*+", False),
        (r"[])]*+(a)+", False),
    ],
)
def test_groups_are_told_from_characters(pattern: str, expected: bool) -> None:
    assert repeats_a_group_possessively(pattern) is expected


def test_modules_with_patterns_are_found() -> None:
    assert "spmd.text.lexer" in MODULES
