"""Programs that XLA:GPU compiles for the simulator: what it is given, the times of its profile, what is kept."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from benchmarks.simulation.xla_gpu_program import (
    XlaGpu,
    flags_for,
    serialized,
    times,
    without_copies,
)
from launch.options import CompileOptions
from spmd.hlo import Opcode
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

#: A scheduled program of two devices.
PROGRAM = """HloModule step, is_scheduled=true, num_partitions=2

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY e {
  x = f32[333,77] parameter(0), sharding={replicated}
  c = f32[333,77] copy(x)
  y = f32[77,77] dot(c, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = f32[77,77] all-reduce(y), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
}"""

#: Stands for an interpreter: it "compiles" a module to itself, and adds a line to a log beside it.
INTERPRETER = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/log"
grep -q broken "$2" && { echo "INTERNAL: no such thing" >&2; exit 1; }
cp "$2" "$3"
"""


def _options() -> CompileOptions:
    return CompileOptions(machine=machine_named("dgx-h100"), keep_attention_calls=True)


def _xla(folder: Path) -> XlaGpu:
    interpreter = folder / "python"
    interpreter.write_text(INTERPRETER)
    interpreter.chmod(0o755)
    spec = folder / "spec.txtpb"
    spec.write_text("gpu_device_info {}\n")
    return XlaGpu(interpreter, spec, folder / "cache")


def test_copies_and_shardings_are_left_out() -> None:
    module = without_copies(parse_module(PROGRAM))
    assert not list(module.entry.with_opcode(Opcode.COPY))
    assert all(x.sharding is None for x in module.all_instructions())


def test_each_kernel_and_collective_has_a_time() -> None:
    found = dict(times(parse_module(PROGRAM), _options()))
    assert set(found) == {"c", "y", "r"}
    assert all(0 < one < 1e-3 for one in found.values())


def test_a_profile_is_a_list_of_names_and_microseconds() -> None:
    name = "n" * 200
    data = serialized({"a": 2e-6, name: 0.5})
    assert data[:2] == bytes((0x0A, 12))
    assert data[2:5] == b"\x0a\x01a"
    assert data[5:14] == b"\x11" + struct.pack("<d", 2.0)
    # 200 = 0xC8 takes two bytes, and so does the length of the message, 1 + 2 + 200 + 9.
    assert data[14:] == b"\x0a\xd4\x01\x0a\xc8\x01" + name.encode() + b"\x11" + struct.pack(
        "<d", 5e5
    )


def test_a_program_is_compiled_once_for_each_set_of_flags(tmp_path: Path) -> None:
    xla = _xla(tmp_path)
    module = parse_module(PROGRAM)
    plain, guided = xla.program(module, flags_for(2), _options())
    assert str(plain) == str(guided)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 3
    assert ["--profile" in line for line in lines] == [False, False, True]
    assert all("--devices 2 --node 8" in line for line in lines)
    xla.program(module, flags_for(2), _options())
    assert len((tmp_path / "log").read_text().splitlines()) == 3
    xla.program(module, flags_for(512), _options())
    assert len((tmp_path / "log").read_text().splitlines()) == 6


def test_the_compiler_s_message_is_in_the_error(tmp_path: Path) -> None:
    module = parse_module(PROGRAM.replace("HloModule step", "HloModule broken"))
    with pytest.raises(RuntimeError, match="no such thing"):
        _xla(tmp_path).program(module, flags_for(2), _options())
