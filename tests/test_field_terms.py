"""Tests of the split of names into words and of the list of words that names do without."""

from __future__ import annotations

import pytest

from tests.field_terms import own_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("root_places", {"places"}),
        ("FactorPlaces", {"places"}),
        ("_MOST_HELD", {"held"}),
        ("placement", set()),
        ("writes_in_place", set()),
        ("IN_PLACE", set()),
        ("_InFlight", set()),
        ("so_far", {"far"}),
        ("transform", set()),
    ],
)
def test_words_of_a_name(name: str, words: set[str]) -> None:
    assert own_words(name) == words
