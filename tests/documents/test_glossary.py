"""The glossary names files that exist."""

from __future__ import annotations

import re

from tests.paths import ROOT


def test_words_are_defined_where_the_glossary_says() -> None:
    text = (ROOT / "docs" / "internals" / "glossary.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 30
    for row in rows:
        *_, defined, _ = row.split("|")
        for path in re.findall(r"`([^`]+)`", defined):
            assert (ROOT / path).exists(), row
