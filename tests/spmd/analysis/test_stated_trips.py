"""Trip counts that a user states are those that everything finds; what is unknown is asked for."""

from __future__ import annotations

import json

import pytest

from launch.cli import main
from spmd.analysis.stated_trips import TripCountError, require_trips, state_trips
from spmd.analysis.trip_count import trip_count
from spmd.hlo.instruction import HloInstruction
from spmd.text.parser import parse_module

#: `halved` runs until a number that is an input is small, `counted` three times.
LOOPS = """HloModule loops
above { p = (f32[], f32[64,64]) parameter(0) x = f32[] get-tuple-element(p), index=0
  k = f32[] constant(0.001) ROOT r = pred[] compare(x, k), direction=GT }
halve { p = (f32[], f32[64,64]) parameter(0) x = f32[] get-tuple-element(p), index=0
  y = f32[64,64] get-tuple-element(p), index=1 h = f32[] constant(0.5) a = f32[] multiply(x, h)
  b = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[], f32[64,64]) tuple(a, b) }
below { p = (s32[], f32[64,64]) parameter(0) x = s32[] get-tuple-element(p), index=0
  k = s32[] constant(3) ROOT r = pred[] compare(x, k), direction=LT }
count { p = (s32[], f32[64,64]) parameter(0) x = s32[] get-tuple-element(p), index=0
  y = f32[64,64] get-tuple-element(p), index=1 h = s32[] constant(1) a = s32[] add(x, h)
  b = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[64,64]) tuple(a, b) }
ENTRY e { x = f32[] parameter(0) y = f32[64,64] parameter(1)
  t = (f32[], f32[64,64]) tuple(x, y)
  halved = (f32[], f32[64,64]) while(t), condition=above, body=halve
  z = f32[64,64] get-tuple-element(halved), index=1
  zero = s32[] constant(0)
  u = (s32[], f32[64,64]) tuple(zero, z)
  counted = (s32[], f32[64,64]) while(u), condition=below, body=count
  ROOT r = f32[64,64] get-tuple-element(counted), index=1 }
"""


def loops(stated: list[tuple[str, int]]) -> dict[str, HloInstruction]:
    module = parse_module(LOOPS)
    state_trips(module, stated)
    return {x.name: x for x in module.all_instructions() if x.name in ("halved", "counted")}


@pytest.mark.parametrize("stated", [[("halved", 12)], [("", 12)], [("", 5), ("halved", 12)]])
def test_a_stated_count_is_found(stated: list[tuple[str, int]]) -> None:
    found = loops(stated)
    assert (trip_count(found["halved"]), trip_count(found["counted"])) == (12, 3)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ([("halve", 1)], "no loop is named 'halve'; did you mean halved?"),
        ([("zzz", 1)], "no loop is named 'zzz'; loops: halved, counted"),
        ([("counted", 4)], "counted has 3 trips, not 4"),
    ],
)
def test_what_cannot_be_stated_is_refused(stated: list[tuple[str, int]], said: str) -> None:
    with pytest.raises(TripCountError) as raised:
        loops(stated)
    assert str(raised.value) == said


def test_unknown_lengths_are_asked_for() -> None:
    with pytest.raises(TripCountError, match="loops: halved; state it by --trips halved=N for one"):
        require_trips(parse_module(LOOPS))


def test_a_simulated_step_takes_as_long_as_its_loops(tmp_path, capsys) -> None:
    path = tmp_path / "loops.hlo"
    path.write_text(LOOPS)
    command = ["simulate", str(path), "--topology", "dgx-h100", "--json"]
    assert main(command) == 2
    assert "unknown trip count of loops: halved" in capsys.readouterr().err

    def seconds(*trips: str) -> float:
        assert main([*command, *(word for one in trips for word in ("--trips", one))]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["notes"] == []
        assert found["fits"] is True
        return float(found["step_s"])

    assert seconds("100") == seconds("halved=100") == seconds("7", "halved=100")
    one, many = seconds("1"), seconds("1001")
    assert many / one == pytest.approx((1001 + 3) / (1 + 3), rel=0.35)


#: The body of `halve`'s loop and its condition, to be used in other places.
PARTS = LOOPS[LOOPS.index("above {") : LOOPS.index("below {")]
STATE = "(f32[], f32[64,64])"
INNER = f"""inner {{ s = {STATE} parameter(0)
  ROOT halved = {STATE} while(s), condition=above, body=halve }}
"""
#: Callers of `inner`, whose loop is of unknown length.
CALLERS = {
    "called": f"""ENTRY e {{ s = {STATE} parameter(0)
  ROOT r = {STATE} call(s), to_apply=inner }}""",
    "called twice": f"""ENTRY e {{ s = {STATE} parameter(0)
  a = {STATE} call(s), to_apply=inner
  ROOT r = {STATE} call(a), to_apply=inner }}""",
    "in a counted loop": f"""few {{ p = (s32[], f32[], f32[64,64]) parameter(0) x = s32[] get-tuple-element(p), index=0
  k = s32[] constant(3) ROOT r = pred[] compare(x, k), direction=LT }}
each {{ p = (s32[], f32[], f32[64,64]) parameter(0) i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1) n = s32[] add(i, one)
  u = f32[] get-tuple-element(p), index=1 v = f32[64,64] get-tuple-element(p), index=2
  s = {STATE} tuple(u, v) h = {STATE} call(s), to_apply=inner
  w = f32[64,64] get-tuple-element(h), index=1 ROOT t = (s32[], f32[], f32[64,64]) tuple(n, u, w) }}
ENTRY e {{ u = f32[] parameter(0) v = f32[64,64] parameter(1) zero = s32[] constant(0)
  t = (s32[], f32[], f32[64,64]) tuple(zero, u, v)
  ROOT counted = (s32[], f32[], f32[64,64]) while(t), condition=few, body=each }}""",
    "in a branch": f"""other {{ ROOT s = {STATE} parameter(0) }}
ENTRY e {{ s = {STATE} parameter(0) p = pred[] parameter(1)
  ROOT r = {STATE} conditional(p, s, s), true_computation=inner, false_computation=other }}""",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_loops_in_what_is_called_are_asked_for(caller: str, tmp_path, capsys) -> None:
    """The name that the message says is one that `--trips` takes, and its trips are all counted."""
    path = tmp_path / "inner.hlo"
    path.write_text(f"HloModule inner_loop\n{PARTS}{INNER}{CALLERS[caller]}\n")
    command = ["simulate", str(path), "--topology", "dgx-h100", "--json"]
    assert main(command) == 2
    message = capsys.readouterr().err
    assert "unknown trip count of loops: halved" in message
    assert "--trips halved=N" in message

    def seconds(*trips: str) -> float:
        assert main([*command, *(word for one in trips for word in ("--trips", one))]) == 0
        return float(json.loads(capsys.readouterr().out)["step_s"])

    assert seconds("halved=1000") == seconds("1000")
    assert seconds("halved=1000") > 100 * seconds("halved=1")


@pytest.mark.parametrize("text", ["halved=", "=3", "x=y", "1e3", "halved=" + "9" * 16])
def test_other_forms_are_refused(text: str, capsys) -> None:
    assert main(["simulate", "m.hlo", "--topology", "dgx-h100", "--trips", text]) == 2
    assert "expected LOOP=N or N, found" in capsys.readouterr().err
