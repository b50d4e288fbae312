"""Words of the project's own in defined names, for which the field has terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

#: Words of the project's own, for which the field has terms: offset, index or position for place, variant or algorithm
#: for form, and so on.
OWN_WORDS = frozenset(
    [
        "agreement",
        "alike",
        "attendant",
        "band",
        "bands",
        "beside",
        "board",
        "boundary",
        "bundle",
        "bundles",
        "circumstances",
        "crew",
        "culprit",
        "dear",
        "dearest",
        "demand",
        "digits",
        "enroll",
        "everybody",
        "far",
        "flight",
        "flights",
        "fold",
        "foreign",
        "form",
        "forms",
        "gains",
        "glance",
        "guest",
        "heads",
        "held",
        "household",
        "ink",
        "introduce",
        "keeper",
        "kept",
        "lane",
        "leading",
        "life",
        "lives",
        "looks",
        "mates",
        "meeting",
        "movable",
        "nap",
        "near",
        "nobody",
        "odometer",
        "offer",
        "offers",
        "origin",
        "origins",
        "outcome",
        "parcels",
        "patience",
        "place",
        "places",
        "planned",
        "price",
        "priced",
        "prices",
        "reach",
        "recipe",
        "remake",
        "remember",
        "residency",
        "retile",
        "setting",
        "sharing",
        "slot",
        "slots",
        "somebody",
        "spot",
        "spots",
        "stamps",
        "tails",
        "take",
        "takes",
        "ties",
        "together",
        "told",
        "trials",
        "tries",
        "turned",
        "unwritten",
        "vigil",
        "walk",
        "walks",
        "whereabouts",
        "whole",
        "withheld",
        "words",
    ]
)
#: Two words that are one term: MPI_IN_PLACE, an operation in place; a collective in flight; leading zeros of an integer
#: and the leading dimension of a matrix in BLAS; OpenMP's work sharing.
_PHRASES = re.compile("in_?(place|flight)|leading_(zeros|dimension)|work_sharing", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def own_words(name: str) -> set[str]:
    """Return the words of ``name`` for which the field has another term."""
    return {word.lower() for word in _WORDS.findall(_PHRASES.sub("", name))} & OWN_WORDS


def defined_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of the module and of all that it defines: functions, classes, parameters, variables, fields."""
    yield 0, path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def names_with_own_words(folder: str) -> dict[str, list[str]]:
    """Return the names with one of ``OWN_WORDS``, each with where it is defined."""
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob(folder if folder.endswith(".py") else f"{folder}/**/*.py")):
        for line, name in defined_names(path):
            if own_words(name):
                found.setdefault(name, []).append(f"{path.relative_to(ROOT).as_posix()}:{line}")
    return found
