"""Hot paths of SASS, and the table of instructions beside XLA's."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import instructions
from benchmarks.gpu.instructions import Launch, missed, predicted_share
from benchmarks.gpu.sass import disassembler, hot_path
from tests.runtime.gpu.codegen.assembler import assembler

SLOW_PATH = """
kernel:
.text.kernel:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/                   BSSY B0, `(.L_x_0) ;
        /*0020*/                   FCHK P0, R4, R5 ;
        /*0030*/              @!P0 BRA `(.L_x_1) ;
        /*0040*/                   MOV R2, 0x60 ;
        /*0050*/                   CALL.REL.NOINC `($__slow) ;
.L_x_1:
        /*0060*/                   BSYNC B0 ;
.L_x_0:
        /*0070*/                   STG.E.64 desc[UR4][R2.64], R4 ;
        /*0080*/                   EXIT ;
$__slow:
        /*0090*/                   FADD R0, R0, R0 ;
        /*00a0*/                   RET.REL.NODEC R2 `(kernel) ;
"""
LOOP = """
kernel:
.text.kernel:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   ISETP.GT.U32.AND P0, PT, R0, 0x1, PT ;
        /*0020*/               @P0 EXIT ;
.L_x_0:
        /*0030*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;
        /*0040*/               @P1 BRA `(.L_x_2) ;
        /*0050*/                   FADD R4, R4, R4 ;
        /*0060*/                   FADD R4, R4, R4 ;
.L_x_2:
        /*0070*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0080*/               @P0 BRA `(.L_x_0) ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3) ;
"""


def test_slow_paths_are_not_counted() -> None:
    path = hot_path(SLOW_PATH, "kernel")
    assert " ".join(x.name for x in path.instructions) == "LDG BSSY FCHK BRA BSYNC STG EXIT"
    assert (path.loaded, path.stored) == (16, 8)


def test_the_hot_path_is_one_round_of_the_loop_with_the_accesses() -> None:
    path = hot_path(LOOP, "kernel")
    assert [x.address for x in path.instructions] == [0x30, 0x40, 0x50, 0x60, 0x70, 0x80]
    assert (path.loaded, path.stored) == (2, 2)


def launch_of(text: str, elements: int, spilled: int = 0) -> Launch:
    return Launch("kernel", 32, spilled, hot_path(text, "kernel"), elements, 4, loads=False)


def test_share_of_the_bandwidth() -> None:
    launch = launch_of(SLOW_PATH, 1 << 28)
    assert launch.per_element == 3.5
    assert launch.seconds == pytest.approx((1 << 28) * 3.5 / 32 / 0.84e12)
    assert predicted_share([launch], 8 << 28) == 1.0
    slow = launch_of(LOOP, 1 << 28)
    assert predicted_share([slow], 1 << 28) == pytest.approx((1 << 28) / 4.3e12 / slow.seconds)


def test_bars() -> None:
    said = list(missed("softmax", [launch_of(SLOW_PATH, 1, spilled=8)] * 6, 0.8))
    assert said == [
        "softmax: 48 bytes are spilled",
        "softmax: 21.0 instructions per element, XLA 19: 1.11 of them",
        "softmax: predicted share of the copy bandwidth 0.80",
    ]
    assert not list(missed("softmax", [launch_of(SLOW_PATH, 1)], 0.9))


COPY = """HloModule m
ENTRY e {
  x = bf16[65536,512]{1,0} parameter(0)
  c = bf16[] constant(2)
  b = bf16[65536,512]{1,0} broadcast(c), dimensions={}
  ROOT y = bf16[65536,512]{1,0} multiply(x, b)
}
"""


@pytest.mark.skipif(
    assembler() is None or disassembler() is None, reason="needs ptxas and nvdisasm"
)
def test_a_planned_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "biasgelu").mkdir()
    (tmp_path / "biasgelu" / "module.hlo").write_text(COPY)
    monkeypatch.setattr("sys.argv", ["instructions", "--corpus", str(tmp_path)])
    assert instructions.main() == 0
    (_, row) = capsys.readouterr().out.splitlines()
    name, _, spills, count, peer, share = row.split()
    assert (name, spills, peer, share) == ("biasgelu", "0", "38", "1.00")
    assert 0 < float(count) < 8
