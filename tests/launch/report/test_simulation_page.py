"""The page of a simulation: what the step consists of, links and collectives, with any name as text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collectives.simulate.simulate import simulate
from launch.cli import main
from launch.cli.programs.simulated_program import simulated_program
from launch.options import CompileOptions
from launch.report.simulation_page import simulation_page
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

HOSTILE = "x</td><script>alert(1)</script>@NOTES@"
MODULE = """HloModule m, num_partitions=8
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[1024,1024] parameter(0)
  g = f32[1024,1024] all-reduce(x), replica_groups=[1,8]<=[8], channel_id=1, use_global_device_ids=true, to_apply=sum
  ROOT d = f32[1024,1024] dot(g, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture
def page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    module, file = tmp_path / "m.hlo", tmp_path / "m.html"
    module.write_text(MODULE)
    assert main(["simulate", str(module), "--topology", "dgx-h100", "-o", str(file)]) == 0
    assert "what the step consists of" in capsys.readouterr().out
    return file.read_text()


def test_it_says_what_the_text_says(page: str) -> None:
    assert "m: a step on dgx-h100" in page
    for said in ("What the step consists of", "waiting for collectives", "NVLink 4", "all-reduce"):
        assert said in page
    assert not re.search(r"@[A-Z]+@", page)
    assert "://" not in page


def test_parts_follow_each_other_up_to_the_step(page: str) -> None:
    bars = [
        (float(left), float(width))
        for left, width in re.findall(r'style="left:([\d.]+)%;width:([\d.]+)%"', page)
    ]
    *parts, step = bars
    assert step == (0.0, 100.0)
    end = 0.0
    for left, width in parts:
        assert left == pytest.approx(end, abs=0.02)
        end = left + width
    assert end == pytest.approx(100.0, abs=0.1)


def test_names_are_text(page: str) -> None:
    machine = machine_named("dgx-h100")
    options = CompileOptions(machine=machine)
    program = simulated_program(parse_module(MODULE), 8, options)
    found = simulate(program.compilation.module, [program.estimator])
    hostile = replace(
        found,
        module=HOSTILE,
        collectives=tuple(replace(one, name=HOSTILE, exposed=1.0) for one in found.collectives),
        notes=(HOSTILE,),
    )
    made = simulation_page(hostile, machine)
    assert made.count("<script>") == page.count("<script>") == 1
    assert made.count("@NOTES@") == 4  # title twice, collective, note


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "f.svg"), "use -o F.html"),
        (("-o", "f.html", "--sweep", "links=1"), "-o F.html is of one simulation"),
        (("-o", "f.txt"), "a name that ends in .html or .svg or .png"),
    ],
)
def test_formats_that_do_not_fit(
    options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "m.hlo"
    module.write_text(MODULE)
    with_suffix = [str(tmp_path / one) if one.startswith("f.") else one for one in options]
    try:
        code = main(["simulate", str(module), "--topology", "dgx-h100", *with_suffix])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err
