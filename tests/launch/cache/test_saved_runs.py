"""Ahead-of-time executables, one compilation for all ranks, files of tiles, timelines: as a user meets them."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from mpi_available import needs_mpi

from launch.cli import main
from runtime.saved_archive import read_archive, with_program
from tests.paths import CASES

CASE = CASES / "ring_attention4"
MODULE, INPUTS, EXPECT = CASE / "module.hlo", CASE / "inputs.npz", CASE / "expected.npz"
SPMD = (sys.executable, "-m", "launch")
RANKS = ("launch", "-n", "4", "--")


def spmd(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = (*SPMD, *map(str, arguments))
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which has imported it: most of a second sooner."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        code = main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), complained.getvalue())


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "ring.spmdx"
    done = here("compile", MODULE, "-o", path)
    assert done.returncode == 0, done.stderr
    assert "for 4 devices, compiled in" in done.stdout
    return path


def test_a_saved_executable_runs_in_place_of_its_module(executable: Path) -> None:
    done = spmd("run", executable, "--inputs", INPUTS, "--expect", EXPECT)
    assert done.returncode == 0, done.stderr
    assert "all 1 outputs agree on 4 devices of this process" in done.stdout
    done = here("bench", executable, "--repeat", "2")
    assert "4 devices in 1 process," in done.stdout


def test_what_a_saved_executable_cannot_do_is_said(executable: Path, tmp_path: Path) -> None:
    done = here("run", executable, "--check")
    assert done.returncode == 2
    assert "use --expect F.npz to compare with outputs" in done.stderr
    done = here("run", executable, "--devices", "2")
    assert done.returncode == 2
    assert "is for 4 devices, not for 2: run it on 4, or compile the module again" in done.stderr
    (tmp_path / "bad.spmdx").write_bytes(executable.read_bytes()[:2000])
    done = here("run", tmp_path / "bad.spmdx")
    assert done.returncode == 2
    assert "bad.spmdx: not a saved executable" in done.stderr
    assert "Traceback" not in done.stderr


def test_thunks_of_another_machine_are_said_and_made_again(
    executable: Path, tmp_path: Path
) -> None:
    data = executable.read_bytes()
    program = read_archive(data, "f").program
    assert program is not None
    other = tmp_path / "other.spmdx"
    other.write_bytes(with_program(data, b"0" * 64 + program[64:]))
    said = "the thunks in {} are for another processor or version: its module is compiled again"
    for path, is_said in ((other, True), (executable, False)):
        done = here("run", "--trust", path, "--inputs", INPUTS, "--expect", EXPECT)
        assert done.returncode == 0, done.stderr
        assert "all 1 outputs agree" in done.stdout
        assert (said.format(path) in done.stderr) == is_said
    done = here("run", other)
    assert "another processor" not in done.stderr


def test_trusted_thunks_give_the_same_bits(executable: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.npz" for n in range(2)]
    for trust, file in zip(((), ("--trust",)), files, strict=True):
        done = here("run", *trust, executable, "--seed", "7", "--outputs", file)
        assert done.returncode == 0, done.stderr
    with np.load(files[0]) as one, np.load(files[1]) as other:
        assert one.files == other.files
        assert all(one[name].tobytes() == other[name].tobytes() for name in one.files)


@needs_mpi
def test_ranks_run_a_saved_executable(executable: Path) -> None:
    done = spmd(*RANKS, "run", executable, "--inputs", INPUTS, "--expect", EXPECT)
    assert done.returncode == 0, done.stderr
    assert "all 1 outputs agree on 4 MPI ranks" in done.stdout


#: Two devices that exchange their tiles in each of forty trips.
TURNING = """HloModule turning, num_partitions=2
more {
  s = (s32[], f32[4,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT l = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[4,6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,6] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[4,6] cosine(x)
  y = f32[4,6] reverse(c), dimensions={1}
  ROOT t = (s32[], f32[4,6]) tuple(j, y)
}
ENTRY e {
  x = f32[4,6] parameter(0), sharding={devices=[1,2]<=[2]}
  zero = s32[] constant(0)
  s = (s32[], f32[4,6]) tuple(zero, x)
  w = (s32[], f32[4,6]) while(s), condition=more, body=body
  ROOT y = f32[4,6] get-tuple-element(w), index=1, sharding={devices=[1,2]<=[2]}
}
"""


@needs_mpi
def test_a_timeline_of_all_ranks_on_one_clock(tmp_path: Path) -> None:
    turning = tmp_path / "turning.hlo"
    turning.write_text(TURNING)
    on_ranks = partial(spmd, "launch", "-n", "2", "--")
    for run, module, devices in ((on_ranks, turning, 2), (here, MODULE, 4)):
        file = tmp_path / "trace.json"
        done = run("run", module, "--steps", "2", "--profile", file)
        assert done.returncode == 0, done.stderr
        trace = json.loads(file.read_text())
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert {event["pid"] for event in slices} == set(range(devices))
        permutes = [event for event in slices if event["tid"] == 1]
        assert {event["args"]["opcode"] for event in permutes} == {"collective-permute"}
        assert len(permutes) >= 2 * devices
        # Nobody can have received (from the rank before, around the ring) what was not sent yet.
        uncertain = 2 * max(trace["otherData"]["clock_uncertainty_us"])
        for name in {event["name"] for event in permutes}:
            flights = [
                sorted(
                    (e["ts"], e["ts"] + e["dur"])
                    for e in permutes
                    if (e["name"], e["pid"]) == (name, rank)
                )
                for rank in range(devices)
            ]
            assert len({len(one) for one in flights}) == 1
            for rank in range(devices):
                for sent, received in zip(flights[rank - 1], flights[rank], strict=True):
                    assert sent[0] <= received[1] + uncertain
        file.unlink()


@needs_mpi
def test_what_rank_0_cannot_compile_is_said_once(tmp_path: Path) -> None:
    elided = "HloModule m, num_partitions=2\nENTRY e {\n  ROOT c = f32[64] constant({...})\n}\n"
    (tmp_path / "m.hlo").write_text(elided)
    done = spmd("launch", "-n", "2", "--", "run", tmp_path / "m.hlo")
    assert done.returncode != 0
    assert done.stderr.count("elided") == 1
    assert "Traceback" not in done.stderr


ROLLED = """HloModule rolled, num_partitions=2
ENTRY e {
  x = f32[4,6] parameter(0), sharding={devices=[1,2]<=[2]}
  ROOT y = f32[4,6] reverse(x), dimensions={1}, sharding={devices=[1,2]<=[2]}
}
"""


@needs_mpi
def test_tiles_in_one_file_for_each_rank(tmp_path: Path) -> None:
    """Whole arrays in, tiles out; the tiles in again give what the whole arrays gave."""
    given, made = tmp_path / "in.%r.npz", tmp_path / "out.%r.npz"
    module, inputs, expect = (tmp_path / name for name in ("m.hlo", "in.npz", "want.npz"))
    module.write_text(ROLLED)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.savez(inputs, arg0=x)
    np.savez(expect, out0=x[:, ::-1])
    ranks = ("launch", "-n", "2", "--")
    done = spmd(*ranks, "run", module, "--inputs", inputs, "--outputs", made)
    assert done.returncode == 0, done.stderr
    assert "1 outputs on 2 MPI ranks" in done.stdout
    tiles = [np.load(tmp_path / f"out.{rank}.npz")["out0"] for rank in range(2)]
    assert np.array_equal(np.concatenate(tiles, axis=1), x[:, ::-1])
    for rank, part in enumerate(np.split(x, 2, axis=1)):
        np.savez(tmp_path / f"in.{rank}.npz", arg0=part)
    done = spmd(*ranks, "run", module, "--inputs", given, "--expect", expect)
    assert "all 1 outputs agree on 2 MPI ranks" in done.stdout, done.stderr
    done = here("run", module, "--inputs", given, "--expect", expect)
    assert "all 1 outputs agree on 2 devices of this process" in done.stdout, done.stderr
    (tmp_path / "in.1.npz").unlink()  # on ranks: tests/launch/ranks/test_spmd_launch.py
    done = here("run", module, "--inputs", given)
    assert done.returncode == 2
    assert "in.1.npz" in done.stderr
