"""`spmd simulate`: what it prints and writes, what it takes of a measured run, its errors."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch import pipeline
from launch.cli import main
from launch.cli.programs import simulated_program
from spmd.machine.named import machine_named
from spmd.machine.reader import write_machine
from tests.paths import CASES

MLP = str(CASES / "mlp_dp2" / "module.hlo")
ON_DGX = ("--topology", "dgx-h100")
#: Collectives where they stand, each to be waited for.
LEFT_OUT = ("latency-hiding", "collective-pipelining", "loop-unrolling")
BLOCKING = (*ON_DGX, *(word for group in LEFT_OUT for word in ("--without", group)))

LOOP = """HloModule looped, num_partitions=2
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT added = f32[] add(x, y) }
body { s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[64,64] get-tuple-element(s), index=1
  w = f32[64,64] dot(v, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[64,64] all-reduce(w), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  ROOT t = (s32[], f32[64,64]) tuple(next, g) }
condition { c = (s32[], f32[64,64]) parameter(0)
  k = s32[] get-tuple-element(c), index=0
  n = s32[] constant(50)
  ROOT less = pred[] compare(k, n), direction=LT }
ENTRY main { p = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[64,64]) tuple(zero, p)
  l = (s32[], f32[64,64]) while(start), condition=condition, body=body
  ROOT r = f32[64,64] get-tuple-element(l), index=1 }
"""
BESIDE = """HloModule beside, num_partitions=2
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT added = f32[] add(x, y) }
ENTRY main { p = f32[2048,2048] parameter(0)
  q = f32[2048,2048] parameter(1)
  g = f32[2048,2048] all-reduce(p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  v = f32[2048,2048] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f32[2048,2048] dot(v, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[2048,2048] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
#: The gather may run beside the products, whose values are there at the same time as its result, then.
CROWDED = """HloModule crowded, num_partitions=2
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT added = f32[] add(x, y) }
ENTRY main { p = f32[2048,2048] parameter(0)
  q = f32[2048,2048] parameter(1)
  v = f32[2048,2048] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f32[2048,2048] dot(v, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  one = f32[] reduce(w, zero), dimensions={0,1}, to_apply=sum
  g = f32[4096,2048] all-gather(p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
  other = f32[] reduce(g, zero), dimensions={0,1}, to_apply=sum
  ROOT r = f32[] add(one, other) }
"""
COLLECTIVE_KEYS = {"op", "kind", "bytes", "group_size", "time_s", "exposed_s", "why"}
KEYS = {
    *("step_s", "compute_s", "communication_s", "exposed_s", "lower_bound_s", "peak_bytes"),
    *("devices", "topology", "collectives"),
}


@pytest.fixture
def looped(tmp_path: Path) -> str:
    path = tmp_path / "looped.hlo"
    path.write_text(LOOP)
    return str(path)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["simulate", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_the_keys_that_scripts_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, MLP, *ON_DGX)
    assert set(found) >= KEYS
    assert (found["devices"], found["topology"]) == (2, "dgx-h100")
    assert all(set(one) >= COLLECTIVE_KEYS for one in found["collectives"])
    assert {one["kind"] for one in found["collectives"]} == {"all-reduce"}
    parts = found["compute_s"] + found["slowed_s"] + found["exposed_s"]
    assert found["step_s"] == pytest.approx(parts)
    assert found["lower_bound_s"] <= found["step_s"]


def test_what_can_be_hidden_is_what_pieces_could(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but an eighth of each product, before what is sent and behind it."""
    file = tmp_path / "chain.hlo"
    lines = BESIDE.replace("dot(v, v)", "dot(v, q)").replace("dot(g, w)", "dot(g, q)").splitlines()
    lines.insert(-1, lines.pop(next(n for n, line in enumerate(lines) if line.startswith("  g ="))))
    file.write_text("\n".join(lines).replace("all-reduce(p)", "all-reduce(w)"))
    asked = (str(file), "--topology", "tcp-cluster{links=0.01,node=1}", "--bound")
    found = figures(capsys, *asked)
    hiding = found["hiding"]
    assert hiding["pieces"] == 8
    assert hiding["bound_by"] in ("Ethernet 25G", "critical path")
    assert hiding["waiting_s"] >= found["step_s"] >= hiding["bound_s"]
    assert hiding["hideable_s"] == pytest.approx(hiding["waiting_s"] - hiding["bound_s"])
    assert hiding["hidden_s"] == pytest.approx(hiding["waiting_s"] - found["step_s"])
    assert 0.9 < 8 * hiding["idle_s"] / found["compute_s"] < 1.1
    assert main(["simulate", *asked]) == 0
    assert "no overlap" in capsys.readouterr().out
    assert figures(capsys, str(file), "--topology", "cpu-avx512", "--bound")["hiding"] is None


def test_the_bound_is_of_a_second_compilation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def counted(*arguments: Any) -> Iterator[Any]:
        compiled.append(arguments)
        return later_stages(*arguments)

    later_stages = simulated_program.later_stages
    monkeypatch.setattr(simulated_program, "later_stages", counted)
    monkeypatch.setattr(pipeline, "later_stages", counted)
    asked = (MLP, "--topology", "tcp-cluster{node=1}")
    whole, once = figures(capsys, *asked, "--bound"), figures(capsys, *asked)
    assert len(compiled) == 3
    assert whole["hiding"] is not None
    assert once == {**whole, "hiding": None}


def test_garbage_is_collected_rarely_while_a_program_is_compiled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    thresholds = []

    def counted(*arguments: Any) -> Iterator[Any]:
        thresholds.append(gc.get_threshold()[0])
        return later_stages(*arguments)

    later_stages = simulated_program.later_stages
    monkeypatch.setattr(simulated_program, "later_stages", counted)
    before = gc.get_threshold()
    figures(capsys, MLP, "--topology", "tcp-cluster{node=1}", "--bound")
    assert min(thresholds) >= 100_000
    assert gc.get_threshold() == before


def test_a_loop_for_a_reader(looped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", looped, *BLOCKING]) == 0
    printed = capsys.readouterr().out
    assert "looped on 2 devices of dgx-h100" in printed
    assert "1 collective, 0 hidden, 1 exposed; longest first:" in printed
    assert re.search(r"\bg +all-reduce +16\.4 kB +2 +50 ", printed)


def test_a_schedule_is_simulated_as_it_comes(
    looped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another compiler's, too: its fusions stay, and nothing moves."""
    file = tmp_path / "scheduled.hlo"
    assert (
        main(["opt", MLP, "--until", "scheduled", "--machine", "cpu-avx512", "-o", str(file)]) == 0
    )
    known = figures(capsys, MLP, "--topology", "cpu-avx512")
    assert figures(capsys, str(file), "--topology", "cpu-avx512") == known
    file.write_text(LOOP.replace("num_p", "is_scheduled=true, num_p"))
    (g,) = figures(capsys, str(file), *ON_DGX)["collectives"]
    assert (g["op"], g["executions"]) == ("g", 50)


def test_a_machine_that_computes_meanwhile_gets_an_order_that_hides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sum of one value goes on while another is multiplied."""
    module = tmp_path / "beside.hlo"
    module.write_text(BESIDE)
    hidden, blocking = (figures(capsys, str(module), *how) for how in (ON_DGX, BLOCKING))
    assert blocking["exposed_s"] == blocking["communication_s"] > 0
    assert hidden["exposed_s"] == 0
    assert hidden["step_s"] < blocking["step_s"]


def test_what_the_memory_limit_leaves_exposed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, file = tmp_path / "crowded.hlo", tmp_path / "small.json"
    module.write_text(CROWDED)
    dgx = machine_named("dgx-h100")
    whys = []
    for megabytes in (200, 70):
        small = replace(dgx, name=f"of{megabytes}", program_bytes=megabytes << 20)
        file.write_text(write_machine(small))
        (g,) = figures(capsys, str(module), "--topology", str(file))["collectives"]
        whys.append(g["why"])
    assert not whys[0].startswith("memory limit")
    assert whys[1].startswith(
        "memory limit: the scheduler had too little memory to overlap it, although"
    )


def test_links_that_carry_less_take_longer(capsys: pytest.CaptureFixture[str]) -> None:
    full = figures(capsys, MLP, *ON_DGX)
    fewer = figures(capsys, MLP, "--topology", "dgx-h100{links=0.01}")
    assert fewer["communication_s"] > full["communication_s"]
    assert fewer["compute_s"] == pytest.approx(full["compute_s"])


def test_a_machine_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.json"
    file.write_text(write_machine(machine_named("dgx-h100")).replace('"dgx-h100"', '"mine"'))
    known = figures(capsys, MLP, *ON_DGX)
    assert figures(capsys, MLP, "--topology", str(file))["step_s"] == known["step_s"]
    assert (
        figures(capsys, MLP, "--topology", f"{file}{{links=0.5}}")["topology"] == "mine{links=0.5}"
    )


def test_more_devices_than_the_module_was_made_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "many.hlo"
    module.write_text(
        "HloModule many\nENTRY main {\n"
        "  a = f32[32768,64] parameter(0), sharding={devices=[16384,1]<=[16384]}\n"
        "  b = f32[32768,64] parameter(1), sharding={devices=[16384,1]<=[16384]}\n"
        "  ROOT c = f32[64,64] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}, sharding={replicated}\n}\n"
    )
    found = figures(capsys, str(module), *ON_DGX)
    assert (found["devices"], found["device_classes"]) == (16384, 1)
    assert [one["group_size"] for one in found["collectives"]] == [16384]


def test_the_trace_has_a_row_for_compute_and_for_each_link(looped: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert main(["simulate", looped, *BLOCKING, "--trace", str(file)]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(rows.values()) == ["compute", "NVLink 4"]
    said = {(rows[e["tid"]], e["name"]) for e in events if e["ph"] == "X"}
    assert {("compute", "wait for g"), ("NVLink 4", "g")} <= said
    assert any("more trips" in name for _, name in said)


def test_times_that_were_measured(
    looped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulated step is a traced one. It consists of medians, so what interrupts single trips is not in it."""
    file = tmp_path / "measured.json"
    assert main(["run", looped, "--steps", "4", "--profile", str(file)]) == 0
    capsys.readouterr()
    found = figures(capsys, looped, *("--topology", "cpu-avx512", "--durations", str(file)))
    spans = _spans(json.loads(file.read_text()))[1:]
    assert 0.8 * min(spans) < found["step_s"] < 1.05 * max(spans)


def _spans(trace: dict[str, Any]) -> list[float]:
    """Seconds of each step."""
    times: dict[int, list[float]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            own = times.setdefault(event["args"]["step"], [])
            own += [event["ts"], event["ts"] + event["dur"]]
    return [(max(own) - min(own)) / 1e6 for _, own in sorted(times.items())]


def test_seconds_by_name(looped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seconds.json"
    file.write_text('{"w": 0.001, "g": 0.002}')
    found = figures(capsys, looped, *BLOCKING, "--durations", str(file))
    assert found["step_s"] == pytest.approx(50 * 0.003, rel=0.01)
    assert found["exposed_s"] == pytest.approx(50 * 0.002)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topology", "abacus"), "no machine is named 'abacus'"),
        (("--topology", "nowhere.json"), "nowhere.json: cannot be read: No such file"),
        ((*ON_DGX, "--durations", "nowhere.json"), "nowhere.json: cannot be read: No such file"),
        ((*ON_DGX, "--cost", "mine=nowhere.json"), "nowhere.json: cannot be read: No such file"),
        ((*ON_DGX, "--trace", "nowhere/t.json"), "there is no folder nowhere"),
        ((*ON_DGX, "--devices", "3"), "3"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", MLP, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_a_trace_of_another_program(
    looped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.json"
    event = {"ph": "X", "name": "else", "cat": "Kernel", "ts": 0, "dur": 1, "pid": 0}
    file.write_text(json.dumps({"traceEvents": [{**event, "args": {"step": 0}}]}))
    assert main(["simulate", looped, *ON_DGX, "--durations", str(file)]) == 2
    assert "no instruction of looped is in it" in capsys.readouterr().err


def test_a_trace_of_another_number_of_devices(
    looped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "three.json"
    event = {"ph": "X", "name": "g", "cat": "Kernel", "ts": 0, "dur": 1, "args": {"step": 0}}
    file.write_text(json.dumps({"traceEvents": [{**event, "pid": n} for n in range(3)]}))
    assert main(["simulate", looped, *BLOCKING, "--durations", str(file)]) == 2
    assert "3 devices were timed, but looped is to run on 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "required: --topology"), ((*ON_DGX, "--cost", "mine"), "expected TARGET=FILE, found")],
)
def test_bad_usage(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", MLP, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_durations_of_another_program_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds of which none is of the module would change nothing, and nobody would see it."""
    file = tmp_path / "d.json"
    file.write_text('{"nothing.of.it": 1e-3, "nor.this": 1}')
    assert main(["simulate", MLP, *ON_DGX, "--durations", str(file)]) == 2
    said = "d.json: is of another program: no instruction of jit_step is in it"
    assert said in capsys.readouterr().err


def test_a_program_that_does_not_fit_is_simulated_and_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = (MLP, *ON_DGX, "--set", "program_bytes=1000")
    assert main(["simulate", *small, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["fits"], found["memory_limit"]) == (False, 1000)
    assert main(["simulate", *small]) == 1
    assert "of 1 kB: does not fit" in capsys.readouterr().out


def test_help_states_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Exit codes: 0 simulated; 1 simulated, but the program does not fit" in printed


def test_narrow_elements_count_half_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """HloModule gathered, num_partitions=8
ENTRY main { p = s8[1048576] parameter(0)
  ROOT g = s8[8388608] all-gather(p), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, dimensions={0} }
"""
    file = tmp_path / "gathered.hlo"
    found = []
    for kind in ("s8", "s4"):
        file.write_text(text.replace("s8[", f"{kind}["))
        found.append(figures(capsys, str(file), *ON_DGX))
    (whole,), (half,) = (one["collectives"] for one in found)
    assert (whole["bytes"], half["bytes"]) == (1 << 23, 1 << 22)
    assert found[1]["peak_bytes"] == found[0]["peak_bytes"] / 2
    assert half["time_s"] < whole["time_s"]
