"""Programs that do not fit end with one line, which says how many bytes are needed and how many there are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import spmd
from launch.cli import main
from runtime.buffers.heap.arena import Interval
from runtime.buffers.heap.heap import pack
from spmd.limits import OutOfMemoryError, as_out_of_memory, available_bytes, most_bytes

SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }"

#: 2^50 elements: more than any machine has, and few enough for 64-bit sizes.
PROGRAMS = {
    "parameter": "p = f32[1125899906842624] parameter(0)\n ROOT r = f32[] constant(1)",
    "iota": (
        "i = f32[1125899906842624] iota(), iota_dimension=0\n z = f32[] constant(0)\n"
        " ROOT r = f32[] reduce(i, z), dimensions={0}, to_apply=sum"
    ),
    "result": "p = f32[] parameter(0)\n ROOT r = f32[1125899906842624] broadcast(p), dimensions={}",
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_does_not_fit_ends_with_one_line(
    program: str, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(f"HloModule m\n{SUM}\nENTRY e {{\n {PROGRAMS[program]}\n}}")
    assert main(["run", str(path), "--backend", backend]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    needed, available = re.findall(r"[\d,]{4,}(?= bytes|(?= are))", line)
    assert int(needed.replace(",", "")) >= 2**52
    assert int(available.replace(",", "")) <= most_bytes()


def test_the_python_call_raises_an_error_of_this_project() -> None:
    module = spmd.parse(f"HloModule m\nENTRY e {{\n {PROGRAMS['result']}\n}}")
    with pytest.raises(OutOfMemoryError, match=r"needs 4,503,599,627,370,5\d\d bytes"):
        spmd.compile(module).run(np.float32(1))


def test_sizes_that_overflow_only_together_are_refused() -> None:
    with pytest.raises(OutOfMemoryError, match="needs 9,223,372,036,854,775,808 bytes"):
        pack([Interval(0, 1, 2**61)] * 4)


def test_a_failed_allocation_of_numpy_says_its_bytes() -> None:
    with pytest.raises(MemoryError) as failure:
        np.empty(2**50, np.float32)
    assert "float32[1125899906842624] needs 4,503,599,627,370,496 bytes" in str(
        as_out_of_memory(failure.value)
    )
    assert "bytes are available" in str(as_out_of_memory(MemoryError()))
    assert 0 < available_bytes() <= most_bytes()
