"""The measurement of library calls runs to its end on a double."""

from __future__ import annotations

import sys

import pytest

from tests.gpu import library_calls


@pytest.mark.parametrize("kind", ["f32", "c128"])
def test_every_call_is_tried(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library_calls, "LARGEST_ON_DOUBLE", 64)
    monkeypatch.setattr(library_calls, "ROUNDS", 1)  # a double's times say nothing
    monkeypatch.setattr(sys, "argv", ["library_calls", "--double", "--kind", kind])
    library_calls.main()
    lines = capsys.readouterr().out.splitlines()
    calls = {line.split()[0] for line in lines}
    assert calls == {"potrf", "trsm", "getrf", "geqrf", "orgqr", "syevd", "gesvd", "gesvdj"}
    for line in lines:
        assert line.endswith("the same results"), line
