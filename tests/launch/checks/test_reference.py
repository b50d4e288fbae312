"""The reference evaluator on loops that take long: a limit, and what is shown meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from launch.checks.reference import reference_program
from launch.cli import main
from spmd.errors import RunError
from spmd.text.parser import parse_module

LOOP = """HloModule long
body {
  state = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4] get-tuple-element(state), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] negate(x)
  ROOT next = (s32[], f32[4]) tuple(j, y)
}
more {
  state = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(TRIPS)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  start = (s32[], f32[4]) tuple(z, x)
  loop = (s32[], f32[4]) while(start), condition=more, body=body
  ROOT y = f32[4] get-tuple-element(loop), index=1
}
"""


def test_a_long_loop_is_ended_with_the_number_of_its_trips() -> None:
    module = parse_module(LOOP.replace("TRIPS", "2000000000"))
    program = reference_program(module, None, partitioned=False, seconds=0.2)
    with pytest.raises(RunError, match=r"after 0\.2 s \(--timeout\), after [\d,]+ trips of .*loop"):
        program.evaluate([np.zeros(4, np.float32)])


def test_a_short_loop_ends_by_itself_and_shows_its_trips() -> None:
    shown: list[str] = []
    module = parse_module(LOOP.replace("TRIPS", "101"))
    program = reference_program(module, None, partitioned=False, seconds=60, show=shown.append)
    (y,) = program.evaluate([np.ones(4, np.float32)])
    assert y.tolist() == [-1] * 4
    assert any("64 trips of the loop loop" in line for line in shown)


@pytest.mark.parametrize("option", ["--backend=reference", "--check"])
def test_the_command_ends_with_one_line(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.hlo"
    path.write_text(LOOP.replace("TRIPS", "2000000"))
    assert main(["run", str(path), option, "--timeout", "0.3"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--timeout" in said
