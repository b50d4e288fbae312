"""Measured choices: what is measured once, what a file may contain, what processes write beside each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.gpu.libraries.tuning import Tuning

CHOICE = bytes(range(64))


def never() -> bytes:
    raise AssertionError("measured again")


def test_a_choice_is_measured_once_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "tuning.json"
    first = Tuning(file, measures=True)
    assert first.choice("a", lambda: CHOICE) == CHOICE
    assert first.choice("a", never) == CHOICE
    assert Tuning(file, measures=False).choice("a", never) == CHOICE


def test_ranks_measure_nothing(tmp_path: Path) -> None:
    assert Tuning(tmp_path / "none.json", measures=False).choice("a", never) is None


def test_the_default_is_a_choice(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    assert Tuning(file, measures=True).choice("a", lambda: b"") == b""
    assert Tuning(file, measures=True).choice("a", never) == b""


def test_what_others_have_written_stays(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    one, other = Tuning(file, measures=True), Tuning(file, measures=True)
    one.choice("a", lambda: CHOICE)
    other.choice("b", lambda: CHOICE[:8])
    assert json.loads(file.read_text()) == {"a": CHOICE.hex(), "b": CHOICE[:8].hex()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{",
        "[" * 100_000,
        '{"a": 1}',
        '{"a": "xyz"}',
        '{"a": "0"}',
        '{"a": "' + "00" * 1000 + '"}',
        '{"' + "k" * 1000 + '": "00"}',
        " " * (5 << 20),
    ],
)
def test_a_damaged_file_has_no_choices(text: str, tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(text)
    assert Tuning(file, measures=True).choice("a", lambda: CHOICE) == CHOICE


def test_a_folder_that_cannot_be_written_costs_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tuning = Tuning(tmp_path / "file" / "tuning.json", measures=True)
    assert tuning.choice("a", lambda: CHOICE) == CHOICE
