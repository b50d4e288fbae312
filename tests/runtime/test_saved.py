"""Saved executables: what comes back is what was saved, and nothing in a file is taken on trust."""

from __future__ import annotations

import io
import json
import math
import random
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime.cpu.kernels.convolution.panels as panel_convolution
import runtime.cpu.kernels.convolution.vectors as vector_convolution
import spmd
from benchmarks.native.tile_unit_off import without_tile_unit
from collectives.schedule.scheduled_overlap import ScheduledCollective, ScheduledOverlap
from runtime.program.records.convolution import VectorMicroKernel
from runtime.saved import save_bytes
from runtime.saved_archive import FORMAT, SavedExecutableError
from runtime.saved_overlap import overlap_json
from runtime.saved_program import load_bytes
from spmd.errors import SpmdError
from spmd.proto.writer import serialize_hlo_proto
from tests.runtime.cpu.kernels.convolution.convolutions import convolution
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    COLLECTIVES,
    assert_same,
    compiled,
    random_inputs,
)

UNEVEN = """HloModule uneven, num_partitions=2
ENTRY main {
  x = f32[5,4]{0,1} parameter(0), sharding={devices=[2,1]<=[2]}
  c = bf16[] constant(1.5)
  b = bf16[5,4] broadcast(c), dimensions={}
  w = f32[5,4] convert(b)
  y = f32[5,4] multiply(x, w)
  z = f32[] constant(0)
  s = f32[4] reduce(y, z), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT r = f32[] add(a, b)
  }
  ROOT t = (f32[5,4], f32[4]) tuple(y, s), sharding={{devices=[2,1]<=[2]}, {replicated}}
}
"""


@pytest.mark.parametrize("name", [*ALIASING, "collectives", "asynchronous"])
def test_comes_back_as_it_was(name: str) -> None:
    texts = {**ALIASING, "collectives": COLLECTIVES, "asynchronous": ASYNC_COLLECTIVES}
    executable = compiled(texts[name])
    data = save_bytes(executable)
    again = load_bytes(data, check=True)
    assert again.dump_thunks() == executable.dump_thunks()
    assert again.dump_buffers() == executable.dump_buffers()
    assert (again.inputs, again.outputs) == (executable.inputs, executable.outputs)
    assert save_bytes(again) == data
    inputs = [random_inputs(executable.module, d) for d in executable.devices]
    for got, want in zip(again.run_devices(inputs), executable.run_devices(inputs), strict=True):
        assert_same(got, want)


def test_a_processor_whose_kernels_want_other_scratch_packs_heaps_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = convolution(
        *("f32[8,8,8,32]", "f32[3,3,32,48]", "f32[8,15,15,48]"),
        *("size=3x3 pad=1_1x1_1 lhs_dilate=2x2", "b01f_01io->b01f"),
    )

    def on_a_processor(form: VectorMicroKernel | None) -> None:
        for module in (panel_convolution, vector_convolution):
            monkeypatch.setattr(module, "vector_micro_kernel", lambda features: form)

    with without_tile_unit():
        on_a_processor(VectorMicroKernel(16, (14, 8)))
        saved = compiled(text)
        data = save_bytes(saved)
        on_a_processor(None)
        here = compiled(text)
        again = load_bytes(data, check=True)
        assert again.dump_buffers() == here.dump_buffers() != saved.dump_buffers()
        inputs = random_inputs(here.module)
        assert_same(again.run(*inputs), here.run(*inputs))


OVERLAP = ScheduledOverlap(
    machine="mine",
    per_exchange=1,
    collectives=(ScheduledCollective("all-reduce", 0.5, 0.25),),
)


def test_what_the_scheduler_expects_comes_back() -> None:
    executable = spmd.compile(spmd.parse(UNEVEN))
    assert load_bytes(save_bytes(executable)).overlap is None
    executable.overlap = OVERLAP
    assert load_bytes(save_bytes(executable)).overlap == OVERLAP


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": "m" * 2001}, "machine must be a string of 1 to 2000 characters"),
        ({"per_exchange": 0}, "per_exchange must be from 1"),
        (
            {"collectives": (ScheduledCollective("all-reduce", math.inf),)},
            "limited must be from 0 to 1e",
        ),
        ({"collectives": (ScheduledCollective("y"),)}, "the module's collectives"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(changes: Any, message: str) -> None:
    executable = spmd.compile(spmd.parse(UNEVEN))
    executable.overlap = replace(OVERLAP, **changes)
    with pytest.raises(SavedExecutableError, match=message):
        save_bytes(executable)


def test_global_arrays_fit_a_loaded_executable_as_they_fit_the_saved_one(tmp_path: Path) -> None:
    executable = spmd.compile(spmd.parse(UNEVEN))
    executable.save(tmp_path / "e.spmdx")
    again = spmd.load_executable(tmp_path / "e.spmdx")
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    for got, want in zip(again.run(x), executable.run(x), strict=True):
        assert got.tobytes() == want.tobytes()
    with zipfile.ZipFile(tmp_path / "e.spmdx") as archive:
        header = json.loads(archive.read("executable.json"))
    assert header["inputs"] == [{"shape": "f32[5,4]", "sharding": "{devices=[2,1]<=[2]}"}]


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as written:
        for name, data in members.items():
            written.writestr(name, data)
    return stream.getvalue()


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as stored:
        return {name: stored.read(name) for name in stored.namelist()}


@pytest.fixture(scope="module")
def saved() -> dict[str, bytes]:
    return members_of(save_bytes(spmd.compile(spmd.parse(UNEVEN))))


def with_header(saved: dict[str, bytes], **changes: Any) -> bytes:
    header = json.loads(saved["executable.json"]) | changes
    return archive(saved | {"executable.json": json.dumps(header).encode()})


TOLD = overlap_json(OVERLAP) or {}
ONE = {"shape": "f32[5,4]", "sharding": "{devices=[2,1]<=[2]}"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "does not state the format"),
        ({"version": 99}, "saved as version 99, this is version 6: compile it again"),
        ({"inputs": []}, "inputs must be a list of 1 arrays"),
        ({"inputs": [[]]}, r"inputs\[0\] must name a shape and a sharding"),
        ({"inputs": [ONE | {"shape": "f32[9,4]"}]}, r"a device's tile is f32\[3,4\]"),
        ({"inputs": [ONE | {"shape": "s32[5,4]"}]}, r"a device's tile is f32\[3,4\]"),
        ({"inputs": [ONE | {"shape": "(f32[5,4])"}]}, "is no array"),
        ({"inputs": [ONE | {"shape": "f32[5,"}]}, "expected"),
        ({"inputs": [ONE | {"sharding": "{devices=[4,1]<=[4]}"}]}, "a device's tile"),
        ({"inputs": [{"shape": "f32[3,4]", "sharding": "{maximal device=7}"}]}, "device's tile"),
        ({"overlap": 3}, "overlap: expected an object"),
        ({"overlap": TOLD | {"more": 1}}, "overlap: unknown field 'more'"),
        ({"overlap": TOLD | {"machine": ""}}, "overlap: machine must be a string"),
        ({"overlap": TOLD | {"per_exchange": 0}}, "per_exchange must be from 1"),
        (
            {"overlap": TOLD | {"collectives": [["all-reduce", 1]]}},
            "must be a name and 2 numbers",
        ),
        (
            {"overlap": TOLD | {"collectives": [["all-reduce", -1, 1]]}},
            "limited must be from 0",
        ),
        (
            {"overlap": TOLD | {"collectives": [["all-reduce", 1, True]]}},
            "in_flight_limited must be a number",
        ),
        ({"overlap": TOLD | {"collectives": [["n", 1, 1]]}}, "the module's collectives"),
        ({"overlap": TOLD | {"collectives": [["x", 1, 1]]}}, "the module's collectives"),
        ({"overlap": TOLD | {"collectives": 2 * [["all-reduce", 1, 1]]}}, "each once"),
        (
            {"overlap": TOLD | {"collectives": 999 * [["all-reduce", 1, 1]]}},
            "a list of at most",
        ),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    saved: dict[str, bytes], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpmdError, match=message):
        load_bytes(with_header(saved, **changes))


def test_what_is_no_saved_executable_is_refused(saved: dict[str, bytes]) -> None:
    unscheduled = serialize_hlo_proto(spmd.parse(UNEVEN))
    arrays = io.BytesIO()
    np.savez(arrays, arg0=np.zeros(3, np.float32))
    for data, message in (
        (b"HloModule m", "f: not a saved executable"),
        (archive({}), "holds no executable.json"),
        (arrays.getvalue(), "its first member is arg0.npy, expected executable.json"),
        (archive({"executable.json": saved["executable.json"]}), "holds no module.hlo.pb"),
        (archive(saved, zipfile.ZIP_DEFLATED), "packed or too large"),
        (archive(saved | {"executable.json": b"[" * 100_000}), "not a saved executable"),
        (archive(saved | {"module.hlo.pb": unscheduled}), "has no schedule"),
    ):
        with pytest.raises(SpmdError, match=message):
            load_bytes(data, "f")
    assert json.loads(saved["executable.json"])["format"] == FORMAT


def test_damaged_bytes_end_in_one_readable_error(saved: dict[str, bytes]) -> None:
    """Checksums are made right again, so that what is damaged is what the members hold."""
    rng = random.Random(0)
    refused = 0
    for _ in range(150):
        changed = dict(saved)
        name = rng.choice(list(changed))
        data = bytearray(changed[name])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        changed[name] = bytes(data)
        try:
            load_bytes(archive(changed), "f", check=True)
        except SpmdError:
            refused += 1
    assert refused > 50
    with pytest.raises(SavedExecutableError):
        load_bytes(archive(saved)[:-30])


def test_an_archive_of_many_members_is_refused_at_once() -> None:
    """Each is read where it stands: to copy what is behind each of them took 15 seconds."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("executable.json"), b"{}")
        for number in range(60_000):
            archive.writestr(zipfile.ZipInfo(str(number)), b"x" * 200)
    with pytest.raises(SavedExecutableError, match="does not state the format"):
        load_bytes(stream.getvalue())
