"""Inputs that mutations begin with: modules of the corpus and the fixtures, most of them cut small."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from tests.paths import ROOT

CORPUS = ROOT.parent / "shared" / "corpus"
CASES = ROOT / "tests" / "cases"
FIXTURES = ROOT / "tests"
#: Entry bodies with rarer forms of the grammar, a blank line between them.
SNIPPETS = Path(__file__).parent / "snippets.txt"
#: Texts up to this size are taken whole; longer ones mostly as excerpts.
SMALL = 4_000
#: One in so many draws takes a long text whole.
WHOLE_EVERY = 12

_CALLEE = re.compile(
    r"(?:to_apply|calls|body|condition|true_computation|false_computation|select|scatter)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"(?:branch_computations|called_computations)=\{([^}]*)\}")
_HEAD = re.compile(r"(?:ENTRY )?%?([\w.\-]+)")


@cache
def text_seeds() -> tuple[str, ...]:
    """Every module of the corpus (of tests/cases where there is none), every fixture, every snippet of a grammar form."""
    cases = CORPUS if CORPUS.is_dir() else CASES
    files = [*sorted(cases.glob("*/module.hlo")), *sorted(cases.glob("*/peer.hlo"))]
    fixtures = [p for p in sorted(FIXTURES.rglob("*.hlo")) if CASES not in p.parents]
    texts = [path.read_text(encoding="utf-8") for path in (*files, *fixtures)]
    bodies = SNIPPETS.read_text(encoding="utf-8").strip().split("\n\n")
    return (*texts, *(f"HloModule s\n\nENTRY e {{\n{body}\n}}\n" for body in bodies))


@cache
def proto_seeds() -> tuple[bytes, ...]:
    """The small text seeds as protos."""
    from spmd.errors import SpmdError
    from spmd.proto.writer import serialize
    from spmd.text.parser import parse_module

    protos: list[bytes] = []
    for number, text in enumerate(text_seeds()):
        try:
            small = text if len(text) <= SMALL else excerpt(text, random.Random(number))
            protos.append(serialize(parse_module(small)))
        except SpmdError:
            continue
    return tuple(protos)


def draw_text(rng: random.Random) -> str:
    text = rng.choice(text_seeds())
    if len(text) <= SMALL or rng.randrange(WHOLE_EVERY) == 0:
        return text
    return excerpt(text, rng)


def excerpt(text: str, rng: random.Random) -> str:
    """The header, the first lines of one computation, and the computations that these lines call."""
    header, *parts = text.split("\n\n")
    bodies: dict[str, str] = {}
    for part in parts:
        if "{\n" in part and (head := _HEAD.match(part)) is not None:
            bodies[head[1]] = part
    if not bodies:
        return text[:SMALL]
    lines = rng.choice(list(bodies.values())).splitlines()
    if len(lines) > 40:
        end = rng.randint(2, 40)
        parameters = [line for line in lines[end:] if " parameter(" in line]
        lines = [*lines[:end], *parameters, "}"]
    begin = "\n".join(lines)
    wanted: list[str] = []
    _collect(begin, bodies, wanted)
    return "\n\n".join([_short_header(header), *(bodies[name] for name in wanted), begin]) + "\n"


def _short_header(header: str) -> str:
    """Return the header without the fields that speak of the whole entry."""
    kept = [
        p
        for p in header.split("\n")[0].split(", ")
        if p.startswith(("HloModule", "num_", "replica_", "is_"))
    ]
    return ", ".join(kept)


def _collect(part: str, bodies: dict[str, str], wanted: list[str]) -> None:
    """Names of the computations ``part`` needs, callees first."""
    names = [m[1] for m in _CALLEE.finditer(part)]
    for found in _BRANCHES.finditer(part):
        names += [name.strip().lstrip("%") for name in found[1].split(",")]
    for name in names:
        if name in bodies and name not in wanted:
            _collect(bodies[name], bodies, wanted)
            if name not in wanted:
                wanted.append(name)
