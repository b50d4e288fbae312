"""Every malformed text of malformed/ is refused with the messages that are pinned there."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spmd.text.malformed_cases import FOLDER, Case, cases, report

FILES = sorted(path.stem for path in FOLDER.glob("*.txt"))
CASES = [case for file in FILES for case in cases(file)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}: {case.title}")
def test_messages(case: Case) -> None:
    assert report(case.file, case.text) == list(case.messages)


def test_there_are_enough_of_them() -> None:
    found = Counter(case.file.startswith("verifier") for case in CASES)
    assert found[False] >= 120
    assert found[True] >= 80
    assert len({(case.file, case.title) for case in CASES}) == len(CASES)
