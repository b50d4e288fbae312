"""Results of bounded dynamic shape: computed at their bounds, returned with their sizes, seen cut to them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from mpi_available import needs_mpi

import spmd
from launch.cli import main
from launch.data.bounded_results import with_sizes
from launch.data.inputs import InputError
from launch.mpirun import MpiJob
from runtime.saved import save_bytes
from runtime.saved_archive import SavedExecutableError
from runtime.saved_program import load_bytes

# y holds n columns; t is y transposed, in a nested result; on two devices the columns are divided.
COLUMNS = """HloModule columns
ENTRY e {
  x = s32[6,8] parameter(0)
  n = s32[] parameter(1)
  d = s32[6,<=8] set-dimension-size(x, n), dimensions={1}
  y = s32[6,<=8] add(d, d)
  t = s32[<=8,6] transpose(y), dimensions={1,0}
  k = s32[] get-dimension-size(y), dimensions={1}
  p = (s32[], s32[<=8,6]) tuple(k, t)
  ROOT r = (s32[6,<=8], (s32[], s32[<=8,6])) tuple(y, p)SHARDING
}
"""
DIVIDED = ", sharding={{devices=[1,2]<=[2]},{replicated},{devices=[2,1]<=[2]}}"
WHOLE = COLUMNS.replace("SHARDING", "")
ON_TWO = COLUMNS.replace("SHARDING", DIVIDED)

X = np.arange(48, dtype=np.int32).reshape(6, 8)


def program(text: str) -> spmd.Executable:
    return spmd.compile(spmd.parse(text))


def require_columns(got: list[np.ndarray], n: int) -> None:
    y, k, t = got
    np.testing.assert_array_equal(y, 2 * X[:, :n])
    np.testing.assert_array_equal(t, 2 * X[:, :n].T)
    assert y.shape == (6, n)
    assert k == n


@pytest.mark.parametrize("text", [WHOLE, ON_TWO], ids=["one device", "two devices"])
def test_a_run_returns_arrays_of_their_true_sizes(text: str) -> None:
    executable = program(text)
    assert executable.num_devices == 1 + ("devices" in text)
    for n in (0, 3, 8):
        require_columns(executable.run(X, np.int32(n)), n)
    assert [str(one.shape) for one in executable.results] == ["s32[6,<=8]", "s32[]", "s32[<=8,6]"]


def test_a_dimension_whose_size_was_never_set_has_its_bound() -> None:
    negated = program(
        "HloModule m\nENTRY e { p = s32[<=5] parameter(0) ROOT r = s32[<=5] negate(p) }"
    )
    (got,) = negated.run(np.arange(5, dtype=np.int32))
    np.testing.assert_array_equal(got, -np.arange(5))


def test_a_size_beyond_its_bound_is_refused() -> None:
    executable = program(WHOLE)
    with pytest.raises(
        spmd.SpmdError, match="size 9 of dimension 1 of output 0 leaves the bound 8"
    ):
        executable.run(X, np.int32(9))


def test_an_array_without_its_size_is_refused() -> None:
    executable = program(WHOLE)
    outputs = executable.run(executable.put([X, np.array(3, np.int32)]))
    require_columns(executable.get(outputs), 3)
    with pytest.raises(spmd.SpmdError, match="get takes all outputs of the run together"):
        executable.get(outputs[:1])
    with pytest.raises(spmd.SpmdError, match="the size of s32\\[6,<=8\\] is another output"):
        np.asarray(outputs[0])
    (k,) = executable.get(outputs[1:2])
    assert k == 3


def test_a_saved_executable_knows_which_outputs_are_sizes() -> None:
    data = save_bytes(program(ON_TWO))
    require_columns(load_bytes(data).run(X, np.int32(5)), 5)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["executable.json"])
    header["outputs"][1]["shape"] = "s32[]"
    header["outputs"][2]["shape"] = "s32[<=8,<=6]"
    header["outputs"][0]["shape"] = "s32[<=6,<=8]"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as written:
        for name, content in (members | {"executable.json": json.dumps(header).encode()}).items():
            written.writestr(name, content)
    with pytest.raises(SavedExecutableError, match="the last outputs must be s32\\[\\] sizes"):
        load_bytes(stream.getvalue())


def test_files_hold_the_true_sizes_and_are_compared_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, given, out = (tmp_path / name for name in ("m.hlo", "in.npz", "out.npz"))
    module.write_text(ON_TWO)
    np.savez(given, arg0=X, arg1=np.int32(3))
    common = ["run", str(module), "--inputs", str(given)]
    assert main([*common, "--check", "--outputs", str(out)]) == 0
    with np.load(out) as stored:
        require_columns([stored[f"out{k}"] for k in range(len(stored))], 3)
    assert main([*common, "--expect", str(out)]) == 0
    assert (
        main(["run", str(module), "--backend", "reference", *common[2:], "--expect", str(out)]) == 0
    )
    np.savez(given, arg0=X, arg1=np.int32(4))
    capsys.readouterr()
    assert main([*common, "--expect", str(out)]) == 1
    assert "s32[6,4]  max |difference| inf" in capsys.readouterr().out
    np.savez(out, out0=X[:, :3].T, out1=np.int32(3), out2=X[:, :3].T)
    assert main([*common, "--expect", str(out)]) == InputError.exit_code


def test_one_device_program_returns_sizes_unless_its_results_are_divided() -> None:
    text = """HloModule per_device, num_partitions=2
    ENTRY e {
      x = s32[4] parameter(0), sharding={replicated}
      n = s32[] parameter(1), sharding={replicated}
      ROOT d = s32[<=4] set-dimension-size(x, n), dimensions={0}, sharding={replicated}
    }"""
    options = spmd.CompileOptions(partitioned=True)
    executable = spmd.compile(spmd.parse(text), 2, options=options)
    (got,) = executable.run(np.arange(4, dtype=np.int32), np.int32(3))
    np.testing.assert_array_equal(got, np.arange(3))
    divided = text.replace("={0}, sharding={replicated}", "={0}, sharding={devices=[2]<=[2]}")
    with pytest.raises(
        spmd.SpmdError, match=r"result 0 of per_device, .* has bounded dynamic sizes"
    ):
        spmd.compile(spmd.parse(divided), 2, options=options)


def test_a_bounded_result_that_aliases_a_parameter_is_refused() -> None:
    text = WHOLE.replace(
        "columns\n", "columns, input_output_alias={ {0}: (0, {}, may-alias) }\n", 1
    )
    with pytest.raises(
        spmd.SpmdError, match=r"result \[0\] of columns is bounded dynamic and aliases"
    ):
        program(text)


def test_other_aliases_and_the_header_speak_of_the_leaves() -> None:
    header = (
        "columns, input_output_alias={ {1,0}: (1, {}, may-alias) }, "
        "entry_computation_layout={(s32[6,8], s32[])->(s32[6,<=8], (s32[], s32[<=8,6]))}, "
        "allow_spmd_sharding_propagation_to_output={true,false}\n"
    )
    text = WHOLE.replace("columns\n", header, 1)
    changed = with_sizes(spmd.parse(text), partitioned=False)
    assert [alias.output_index for alias in changed.input_output_alias] == [(1,)]
    assert "{true,false,false,false,false}" in str(changed)
    assert "(s32[6,<=8], s32[], s32[<=8,6], s32[], s32[])" in str(changed).replace("{1,0}", "")
    require_columns(program(text).run(X, np.int32(2)), 2)


def test_a_module_without_bounded_results_stays_as_it_is() -> None:
    module = spmd.parse(
        "HloModule m\nENTRY e { p = s32[5] parameter(0) ROOT r = s32[5] negate(p) }"
    )
    assert with_sizes(module, partitioned=False) is module


@needs_mpi
def test_ranks_give_the_true_sizes(tmp_path: Path) -> None:
    module, given, out = (tmp_path / name for name in ("m.hlo", "in.npz", "out.npz"))
    module.write_text(ON_TWO)
    np.savez(given, arg0=X, arg1=np.int32(3))
    arguments = [str(module), "--inputs", str(given), "--check", "--outputs", str(out)]
    job = MpiJob(2, (sys.executable, "-m", "launch", "run", *arguments))
    done = subprocess.run(
        job.arguments(),
        env=job.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as stored:
        require_columns([stored[f"out{k}"] for k in range(len(stored))], 3)
