"""The files of `make quick` exist, and every folder with tests is listed."""

from __future__ import annotations

from tests.quick import CHOSEN, chosen, files_of, folders, left_out


def test_every_folder_is_listed() -> None:
    assert sorted(CHOSEN) == folders()


def test_every_chosen_file_is_there() -> None:
    for folder in CHOSEN:
        assert set(chosen(folder)) <= set(files_of(folder)), folder


def test_what_is_left_out_is_counted() -> None:
    lines = [line for line in left_out().splitlines() if line.startswith("  tests")]
    assert [line for line in lines if line.startswith("  tests/mpi: all ")]
    run = sum(len(list(chosen(folder))) for folder in CHOSEN)
    counts = [line.partition(": ")[2].split() for line in lines]
    missing = sum(int(words[1] if words[0] == "all" else words[0]) for words in counts)
    assert run + missing == sum(len(files_of(folder)) for folder in folders())
