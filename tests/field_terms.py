"""Words of the project's own in defined names, for which the field has terms."""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePath

from tests.source_facts import source_facts

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


def names_with_own_words(folder: str) -> dict[str, list[str]]:
    """Return the names with one of ``OWN_WORDS``, each with where it is defined.

    folder: a folder, with all below it, or a pattern of files.
    """
    found: dict[str, list[str]] = {}
    for source in source_facts():
        if source.path.startswith(f"{folder}/") or PurePath(source.path).match(folder):
            for line, name in source.names:
                if _has_own_words(name):
                    found.setdefault(name, []).append(f"{source.path}:{line}")
    return found


@cache
def _has_own_words(name: str) -> bool:
    return bool(own_words(name))
