"""A slice of what ``python -m tests.fuzz.mutate`` does at length: damaged modules end in a module or one SpmdError."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.mutate import make_input, run
from tests.fuzz.outcome import judge

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="peaks of memory are read from /proc"
)


@pytest.mark.parametrize(("kind", "count"), [("text", 1500), ("proto", 500)])
def test_damaged_modules(kind: str, count: int) -> None:
    tally = run(count, seed=7, kind=kind)
    assert tally.findings == []
    assert sum(tally.ends.values()) == count
    assert tally.ends["module"] > count // 20
    assert tally.ends["HloParseError"] > count // 4


def test_an_input_is_the_same_each_time() -> None:
    assert [make_input(3, n, "text") for n in range(5)] == [
        make_input(3, n, "text") for n in range(5)
    ]


def test_a_loop_without_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(_: bytes) -> str:
        while True:
            pass

    monkeypatch.setattr("tests.fuzz.outcome.read_verify_print", loop)
    monkeypatch.setattr("tests.fuzz.outcome.MAX_SECONDS", 0.05)
    assert judge(b"").end.startswith("finding: more than")


def test_a_large_input_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(_: bytes) -> str:
        return "module" if len(bytearray(b"x") * (64 << 20)) else ""

    monkeypatch.setattr("tests.fuzz.outcome.read_verify_print", grow)
    monkeypatch.setattr("tests.fuzz.outcome.MAX_BYTES", 32 << 20)
    outcome = judge(b"")
    assert outcome.is_finding
    assert outcome.peak > 32 << 20
