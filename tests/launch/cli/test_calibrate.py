"""`spmd calibrate`: a description that is read back, where compilations find it; what is there already is not trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mpi_available import needs_mpi

from launch.calibration.convolutions import ConvolutionOptions, Layer
from launch.calibration.loops import LoopSizes
from launch.calibration.machine import CalibrationOptions, Measurement
from launch.calibration.network import NetworkSeconds, joined
from launch.calibration.products import CLASSES, TYPES, UNCACHED, ProductOptions
from launch.calibration.programs import ProgramSizes
from launch.cli import calibrate, main
from launch.mpirun import MpiJob
from launch.target import calibrated
from launch.target.calibrated import calibration_path, keep_calibration, machine_here
from spmd.hlo import Opcode
from spmd.machine.named import machine_named
from spmd.machine.reader import MachineError, read_machine, write_machine
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

#: Small measurements, each of few tries.
QUICK = CalibrationOptions(
    LoopSizes(
        working_sets=(1 << 14, 1 << 16),
        elements=1 << 12,
        types=(PrimitiveType.F32,),
        functions=(Opcode.EXPONENTIAL,),
        chain=2,
        budget=0.0,
    ),
    ProductOptions(TYPES[:1], (CLASSES[1], CLASSES[3]), UNCACHED[:1], 1 << 16, 0.0),
    ConvolutionOptions(
        (Layer("forward", 1, 8, 4, 8), Layer("kernel", 1, 8, 4, 8)),
        uncached_bytes=1 << 14,
        budget=0.0,
    ),
    ProgramSizes((2, 6), (1, 3), (1 << 4, 1 << 8, 1 << 12), 0.0),
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's folder of settings is a new one."""
    monkeypatch.setattr(calibrate, "CalibrationOptions", lambda: QUICK)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_calibration_is_found(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine_here() is machine_named()
    assert main(["calibrate"]) == 0
    assert str(calibration_path()) in capsys.readouterr().out
    machine = machine_here()
    assert machine.name == f"calibrated-{machine.digest[:8]}"
    assert machine.rates_of(PrimitiveType.F32).simple > 1e6
    assert machine.levels[0].size == 1 << 14
    f32 = (PrimitiveType.F32,) * 3
    assert 0 < machine.product_seconds(f32, (64, 64, 64)) < machine.product_seconds(f32, (512,) * 3)
    assert machine.convolutions
    assert calibration_path().is_relative_to(quick)


def test_what_cannot_be_true_is_not_written(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An earlier calibration stays: no command could read what replaced it."""
    monkeypatch.setattr(calibrate, "measure", lambda *_: Measurement({}, {}))
    monkeypatch.setattr(calibrate, "described", lambda *_: machine_named())
    assert main(["calibrate"]) == 0
    before = calibration_path().read_bytes()
    capsys.readouterr()
    disturbed = replace(machine_named(), kernel_seconds=-1.0)
    monkeypatch.setattr(calibrate, "described", lambda *_: disturbed)
    assert main(["calibrate"]) == 2
    assert "nothing was written, calibrate again" in capsys.readouterr().err
    assert calibration_path().read_bytes() == before


def test_a_network_that_was_measured_earlier_is_kept(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process measures a node; what joins nodes takes two, a link, and the same node as before."""
    network = NetworkSeconds(((1 << 10, 2e-4), (1 << 20, 9e-3)), nodes=2, devices=3)
    monkeypatch.setattr(calibrate, "measure", lambda *_: Measurement({}, {}))
    monkeypatch.setattr(calibrate, "described", lambda *_: machine_named())
    assert main(["calibrate"]) == 0
    assert "between nodes" not in capsys.readouterr().out
    earlier = joined(machine_here(), network)
    keep_calibration(write_machine(earlier))
    faster = replace(machine_named(), kernel_seconds=1e-9)
    monkeypatch.setattr(calibrate, "described", lambda *_: faster)
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert "between nodes: " in out
    assert (
        "kept from the earlier calibration: the network between nodes (measured with 6 ranks on 2 nodes"
        in out
    )
    machine = machine_here()
    assert machine == joined(faster, network)
    assert machine.name != earlier.name
    # Written elsewhere it is the same.
    assert main(["calibrate", "-o", str(quick / "m.json")]) == 0
    assert read_machine((quick / "m.json").read_bytes(), "m.json") == machine


def test_an_earlier_calibration_that_cannot_be_read_is_replaced(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "measure", lambda *_: Measurement({}, {}))
    monkeypatch.setattr(calibrate, "described", lambda *_: machine_named())
    calibration_path().parent.mkdir()
    calibration_path().write_text('{"format": 7}')
    assert main(["calibrate"]) == 0
    assert "nothing of the earlier calibration is kept: " in capsys.readouterr().out
    assert machine_here() == machine_named()


def test_who_reads_while_it_is_replaced_finds_the_old_one_whole(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "measure", lambda *_: Measurement({}, {}))
    monkeypatch.setattr(calibrate, "described", lambda *_: machine_named())
    folder = calibration_path().parent
    folder.mkdir()
    calibration_path().write_text("the old one")
    with calibration_path().open() as file:
        assert main(["calibrate"]) == 0
        assert file.read() == "the old one"
    assert machine_here() == machine_named()
    assert list(folder.iterdir()) == [calibration_path()]


def test_json_is_the_description_and_nothing_else(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = quick / "m.json"
    assert main(["calibrate", "--json", "-o", str(path)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(path.read_text())
    assert read_machine(path.read_bytes(), "m.json").kind == "cpu"
    assert not calibration_path().exists()


def test_a_calibration_that_cannot_be_read_is_an_error(quick: Path) -> None:
    calibration_path().parent.mkdir()
    calibration_path().write_text('{"format": 7}')
    with pytest.raises(MachineError, match="format 7; this version reads 1"):
        machine_here()


def test_a_calibration_of_another_processor_is_not_found(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's folder may be the same on machines that are not."""
    monkeypatch.setattr(calibrate, "measure", lambda *_: Measurement({}, {}))
    monkeypatch.setattr(calibrate, "described", lambda *_: machine_named())
    assert main(["calibrate"]) == 0
    assert machine_here() is not machine_named()
    monkeypatch.setattr(calibrated, "processor_digest", lambda: "another1")
    assert machine_here() is machine_named()


#: `spmd` with few and small measurements of a network.
FEW_MESSAGES = """
import sys
from functools import partial
from launch.__main__ import main
from launch.cli import calibrate
calibrate.NetworkSizes = partial(
    calibrate.NetworkSizes,
    messages=(1 << 10, 1 << 14), product=64, transfer_seconds=0.001, steps=2, rounds=2,
)
sys.exit(main())
"""


def ranks_calibrate(output: Path, *, nodes: bool) -> subprocess.CompletedProcess[str]:
    """nodes: each rank is told to be on one of its own."""
    told = "SPMD_NODE_ID=$OMPI_COMM_WORLD_RANK " if nodes else ""
    program = output.parent / "few_messages.py"
    program.write_text(FEW_MESSAGES)
    line = f'{told}exec {sys.executable} "{program}" calibrate -o "{output}"'
    job = MpiJob(2, ("sh", "-c", line))
    return subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@needs_mpi
def test_ranks_of_one_node_do_not_calibrate(tmp_path: Path) -> None:
    """They would disturb each other."""
    done = ranks_calibrate(tmp_path / "f.json", nodes=False)
    assert done.returncode == 2
    assert done.stderr.count("from one process: start it without a launcher") == 1
    assert not (tmp_path / "f.json").exists()


@needs_mpi
def test_ranks_of_two_nodes_add_what_joins_them(tmp_path: Path) -> None:
    output = tmp_path / "f.json"
    done = ranks_calibrate(output, nodes=True)
    assert done.returncode == 0, done.stderr
    assert "between nodes: " in done.stdout
    machine = read_machine(output.read_bytes(), "f.json")
    inside, between = machine.exchanges
    assert inside.devices == 1
    assert between.ports == 1
    assert machine.products == machine_here().products


def test_a_folder_of_settings_that_is_a_file(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibration_path().parent.write_text("")
    assert main(["calibrate"]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_no_file_can_be_written_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["calibrate", "-o", str(tmp_path / "no" / "m.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_relative_folder_of_settings_is_ignored() -> None:
    assert calibration_path({"XDG_CONFIG_HOME": "here"}).is_relative_to(Path.home())


@pytest.mark.parametrize("what", ["forward", "input", "kernel"])
@pytest.mark.parametrize("stride", [1, 2])
def test_layers_are_convolutions_as_jax_writes_them(what: str, stride: int) -> None:
    """Their gradients have the sizes of what they are gradients of, as the parser checks."""
    text = Layer(what, 2, 8, 4, 6, 3, stride).text(PrimitiveType.F32)
    root = parse_module(text).entry.root
    out = 8 // stride
    expected = {"forward": (2, out, out, 6), "input": (2, 8, 8, 4), "kernel": (3, 3, 4, 6)}
    assert root.dims == expected[what]
