"""Attributes that are checked and stored as they are written: ``statistics`` and ``origin``."""

from __future__ import annotations

import re
from collections.abc import Callable

from spmd.text.lexer import STRING, Scanner

_STATISTICS = re.compile(
    r"\{\s*+(?:[\w.\-]++=\s*+-?[0-9]++\s*+(?>(?:,\s*+[\w.\-]++=\s*+-?[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?\s*+)*))?\}"
)
_SYNTHETIC = re.compile(r"\[\s*+synthetic_call\s*+\]")
#: An array of the original program: the name of an instruction, and the index in its result.
_ORIGINAL_ARRAY = re.compile(
    rf"\{{\s*+(?:(?:{STRING.pattern})\s*+(?:\{{\s*+(?:[0-9]++\s*+(?>(?:,\s*+[0-9]++\s*+)*))?\}}\s*+)?)?\}}"
)


def read_statistics(scanner: Scanner) -> str:
    """Read ``{visualizing_index=1,s-1=33,s-2=4.5}``."""
    return scanner.need(_STATISTICS, "{visualizing_index=1,name=0.5}").group()


def read_original_value(scanner: Scanner) -> str:
    """Read ``{({"v1"}, {"v2" {0}})}``, a tree of tuples of original arrays, or ``{[synthetic_call]}``."""
    start = scanner.skip_space()
    scanner.expect("{")
    if scanner.match(_SYNTHETIC) is not None:
        scanner.expect("}")
        return scanner.text[start : scanner.pos]
    depth = 0
    while depth or not scanner.consume_if("}"):
        if scanner.consume_if("("):
            depth += 1
        elif depth and scanner.consume_if(")"):
            depth -= 1
        elif not (depth and scanner.consume_if(",")):
            scanner.need(_ORIGINAL_ARRAY, 'an original array such as {"name" {0}}')
    return scanner.text[start : scanner.pos]


#: In the order in which they are printed. Older texts have ``origin`` in place of ``original_value``.
OPAQUE: tuple[tuple[str, Callable[[Scanner], str]], ...] = (
    ("statistics", read_statistics),
    ("origin", read_original_value),
    ("original_value", read_original_value),
)
