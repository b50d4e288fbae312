"""The cases in malformed/: what is wrong (``# title``), an HLO text, and every message about it (``! place: message``).

In modules.txt a case is a whole text; elsewhere it is lines of an entry that stands in ``FRAME``. Cases of verifier*.txt
can be read, and the messages are the verifier's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spmd.errors import HloParseError, VerificationError
from spmd.text.parser import parse_module
from spmd.verifier import verify

FOLDER = Path(__file__).parent / "malformed"
FRAME = """HloModule m{header}

sum {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}

lt {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT
}}

neg {{
  n = f32[] parameter(0)
  ROOT m = f32[] negate(n)
}}

negate_all {{
  n.1 = f32[2,3] parameter(0)
  ROOT m.1 = f32[2,3] negate(n.1)
}}

ENTRY e {{
  a = f32[2,3]{{1,0}} parameter(0)
  v = f32[6] parameter(1)
  z = f32[] parameter(2)
  i = s32[] parameter(3)
  t = (f32[2,3], s32[]) parameter(4)
{body}}}
"""
_CASE = re.compile(
    r"^# (?P<title>.*)\n(?P<text>(?:(?!!).*\n)*?)(?P<messages>(?:! .*\n)+)", re.MULTILINE
)
_HEADER = re.compile(r"header(.*)\n")


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    text: str
    messages: tuple[str, ...]


def cases(file: str) -> Iterator[Case]:
    """All cases of ``malformed/<file>.txt``."""
    for found in _CASE.finditer((FOLDER / f"{file}.txt").read_text(encoding="utf-8")):
        messages = tuple(line.removeprefix("! ") for line in found["messages"].splitlines())
        yield Case(file, found["title"], found["text"], messages)


def whole_text(file: str, text: str) -> str:
    """``header, num_partitions=4`` as a first line goes to the header."""
    if file == "modules":
        return text
    header = ""
    if (found := _HEADER.match(text)) is not None:
        header, text = found[1], text[found.end() :]
    return FRAME.format(header=header, body=text)


def report(file: str, text: str) -> list[str]:
    """Every message about the text, places before those of the reader."""
    whole = whole_text(file, text)
    try:
        module = parse_module(whole)
        verify(module)
    except HloParseError as error:
        return [_placed(e) for e in error.errors]
    except VerificationError as error:
        return list(error.problems)
    return []


def _placed(error: HloParseError) -> str:
    assert error.location is not None
    return f"{error.location.line}:{error.location.column}: {error.message}"
