"""Custom calls in `spmd simulate`: the cost that a file states, and what is said of those without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.cli import main, simulate
from spmd.proto.writer import serialize_hlo_proto
from spmd.text.parser import parse_module

ON_DGX = ("--topology", "dgx-h100")
CALL = """HloModule called
ENTRY main { p = f32[64] parameter(0)
  ROOT c = f32[64] custom-call(p), custom_call_target="mine" }
"""


@pytest.fixture
def called(tmp_path: Path) -> str:
    path = tmp_path / "called.hlo"
    path.write_text(CALL)
    return str(path)


def test_a_custom_call_costs_what_a_file_says(
    called: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", called, *ON_DGX]) == 2
    assert "--cost mine=F.json" in capsys.readouterr().err
    file = tmp_path / "mine.json"
    file.write_text('{"seconds": 0.25}')
    assert main(["simulate", called, *ON_DGX, "--cost", f"mine={file}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_s"] == 0.25


def test_unknown_targets_are_named_before_the_module_is_parsed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two.hlo"
    other = (
        '  d = f32[64] custom-call(p), custom_call_target="other", metadata={op_name="jit(f)/g"}\n'
    )
    file.write_text(CALL.replace("  ROOT", f"{other}  ROOT"))
    read = []
    monkeypatch.setattr(simulate, "read_module", read.append)
    assert main(["simulate", str(file), *ON_DGX, "--json"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, read) == ("", [])
    assert captured.err.splitlines() == [
        "spmd: error: custom call 'other': its cost is unknown (1 call, at jit(f)/g); state it by --cost other=F.json",
        "custom call 'mine': its cost is unknown (1 call); state it by --cost mine=F.json",
    ]


def test_unknown_targets_of_a_serialized_module_are_named_before_it_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "called.hlo.pb"
    file.write_bytes(serialize_hlo_proto(parse_module(CALL)))
    monkeypatch.delattr(simulate, "simulated_program")
    assert main(["simulate", str(file), *ON_DGX]) == 2
    assert "--cost mine=F.json" in capsys.readouterr().err


LIBRARY = """HloModule library, is_scheduled=true
ENTRY e { a = f32[4096,1024] parameter(0)
  b = f32[1024,4096] parameter(1)
  c = (f32[4096,4096], s8[1024]) custom-call(a, b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,"alpha_imag":0,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  ROOT d = f32[4096,4096] get-tuple-element(c), index=0 }
"""
PRODUCT = """HloModule product, is_scheduled=true
ENTRY e { a = f32[4096,1024] parameter(0)
  b = f32[1024,4096] parameter(1)
  ROOT d = f32[4096,4096] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""


def test_library_calls_of_a_schedule_take_as_long_as_what_they_compute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = []
    for name, text in (("library", LIBRARY), ("product", PRODUCT)):
        file = tmp_path / f"{name}.hlo"
        file.write_text(text)
        assert main(["simulate", str(file), *ON_DGX, "--json"]) == 0
        seconds.append(json.loads(capsys.readouterr().out)["compute_s"])
    assert seconds[0] == seconds[1] > 0


ATTENTION = """HloModule attention
ENTRY e { q = bf16[2,1024,8,64] parameter(0)
  k = bf16[2,1024,8,64] parameter(1)
  c = (bf16[2,8,1024,64], u8[0]) custom-call(q, k, k), custom_call_target="__cudnn$fmhaSoftmax", backend_config={"cudnn_fmha_backend_config":{"fmha_scale":1,"intermediate_tensor_shape":{"element_type":"BF16","dimensions":["2","8","1024","1024"]},"mask_type":"CAUSAL","bmm1_dot_dimension_numbers":{"lhs_batch_dimensions":["0","2"]}}}
  ROOT o = bf16[2,8,1024,64] get-tuple-element(c), index=0 }
"""
SCHEDULED = ATTENTION.replace("HloModule attention", "HloModule attention, is_scheduled=true")


def instructions_of(file: Path, *options: str) -> set[str]:
    """Return the names of what computes in a simulated step."""
    trace = file.with_suffix(".json")
    assert main(["simulate", str(file), *options, "--trace", str(trace)]) == 0
    events = json.loads(trace.read_text())
    return {x["name"] for x in events["traceEvents"] if x["ph"] == "X"}


def test_a_gpu_computes_fused_attention_by_its_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step is the call's, whether the program is scheduled already or not."""
    seconds = []
    for name, text in (("logical", ATTENTION), ("scheduled", SCHEDULED)):
        file = tmp_path / f"{name}.hlo"
        file.write_text(text)
        assert main(["simulate", str(file), *ON_DGX, "--json"]) == 0
        seconds.append(json.loads(capsys.readouterr().out)["compute_s"])
        assert instructions_of(file, *ON_DGX) == {"c"}
        capsys.readouterr()
    assert seconds[0] == seconds[1] > 0


def test_a_processor_computes_what_fused_attention_stands_for(tmp_path: Path) -> None:
    file = tmp_path / "logical.hlo"
    file.write_text(ATTENTION)
    assert len(instructions_of(file, "--topology", "cpu-avx512")) > 1
