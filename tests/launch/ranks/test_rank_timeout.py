"""The time for which a rank that shows no sign of life is waited for, and who says it."""

from __future__ import annotations

import pytest

import spmd
from launch.cli import main
from launch.ranks.rank_environment import TimeLimitError, timeout_of, timeout_seconds

DOUBLE = """
HloModule double, num_partitions=2
ENTRY main {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  ROOT y = f32[4] add(x, x), sharding={devices=[2]<=[2]}
}
"""


def test_the_command_line_is_read_before_the_command_is_there() -> None:
    assert timeout_of(["run", "m.hlo", "--timeout", "3"]) == 3.0
    assert timeout_of(["run", "m.hlo"]) is None


def test_the_caller_then_the_environment_then_the_default() -> None:
    assert timeout_seconds(None, {}) == 300
    assert timeout_seconds(None, {"SPMD_TIMEOUT": ""}) == 300
    assert timeout_seconds(None, {"SPMD_TIMEOUT": "2.5"}) == 2.5
    assert timeout_seconds(7, {"SPMD_TIMEOUT": "2.5"}) == 7
    assert timeout_seconds(float("inf"), {}) == float("inf")


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_what_is_no_time_above_zero(text: str) -> None:
    with pytest.raises(TimeLimitError, match=f"SPMD_TIMEOUT is '{text}', expected a number"):
        timeout_seconds(None, {"SPMD_TIMEOUT": text})
    with pytest.raises(TimeLimitError, match="timeout is"):
        timeout_seconds(text, {})  # type: ignore[arg-type]


def test_programs_of_this_process_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = spmd.parse(DOUBLE)
    assert spmd.compile(module, timeout=4).timeout_seconds == 4
    monkeypatch.setenv("SPMD_TIMEOUT", "5")
    assert spmd.compile(module).timeout_seconds == 5


def test_the_command_takes_it_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPMD_TIMEOUT", "never")
    assert main(["run", "m.hlo"]) == 2
    assert "SPMD_TIMEOUT is 'never'" in capsys.readouterr().err
