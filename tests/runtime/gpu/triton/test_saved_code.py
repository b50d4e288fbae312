"""Cubins in saved executables: a machine that trusts the file needs no Triton."""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path

import pytest

from launch.cli import main
from runtime.codegen.llvm.jit import host_jit
from runtime.executable import Executable
from runtime.gpu.commands.kernel import HostedCommand
from runtime.gpu.commands.library_sequence import LibrarySequenceCommand
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.errors import GpuLibraryError
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import Planner
from runtime.gpu.precompile import triton_code
from runtime.gpu.triton.compilation import compiled
from runtime.gpu.triton.saved_code import (
    Cubin,
    code_key,
    cubin_arch,
    cubin_bytes,
    trusted_cubin,
)
from runtime.saved import save_bytes
from runtime.saved_archive import code_bytes
from runtime.saved_program import load_bytes
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.product_epilogues import compiled_for_gpu
from tests.runtime.gpu.triton.ragged import CASES
from tests.spmd.library_calls.attention.calls import BF16, Problem, cudnn_pair

KERNEL = CASES["rows"].kernel()
with_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    code: dict[str, bytes] = {}
    monkeypatch.setattr(host_jit(), "trusted_code", code)
    return code


def elf(machine: int = 190, abi: int = 8, flags: int = 90 << 8) -> bytes:
    """The start of a cubin."""
    start = b"\x7fELF\x02\x01\x01\x41" + bytes([abi]) + bytes(7)
    return start + struct.pack("<HHI3QI", 2, machine, 1, 0, 0, 0, flags) + bytes(100)


def test_architectures_of_both_versions_of_the_abi() -> None:
    assert cubin_arch(elf()) == "sm_90"
    assert cubin_arch(elf(abi=7, flags=0x590559)) == "sm_89"
    assert cubin_arch(elf(machine=62)) is None
    assert cubin_arch(b"ELF" + elf()) is None
    assert cubin_arch(elf()[:51]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        cubin_bytes(Cubin(b"no file", "", 128, 0)),
        cubin_bytes(Cubin(elf(flags=80 << 8), "", 128, 0)),
        cubin_bytes(Cubin(elf(), "", 0, 0)),
        cubin_bytes(Cubin(elf(), "", 100, 0)),
        cubin_bytes(Cubin(elf(), "", 2048, 0)),
        cubin_bytes(Cubin(elf(), "", 128, 228 << 10)),
        cubin_bytes(Cubin(elf() + bytes(16 << 20), "", 128, 0)),
    ],
)
def test_what_is_no_code_for_the_gpu_is_ignored(data: bytes, trusted: dict[str, bytes]) -> None:
    trusted[code_key(KERNEL)] = data
    assert trusted_cubin(KERNEL, "sm_90") is None


def test_code_is_found_by_its_kernel(trusted: dict[str, bytes]) -> None:
    cubin = Cubin(elf(), KERNEL.entry, 256, 100 << 10)
    trusted[code_key(KERNEL)] = cubin_bytes(cubin)
    assert compiled(KERNEL, "sm_90") == cubin
    assert trusted_cubin(CASES["depth"].kernel(), "sm_90") is None


def test_ragged_products_with_code_are_not_left_to_the_host(trusted: dict[str, bytes]) -> None:
    def planned() -> list[type]:
        program = compiled_for_gpu(CASES["rows"].text).program
        planner = Planner(0, 1, launch_maker(HostDriver()), options=GpuOptions(triton=False))
        return [type(command) for command in plan_commands(program.thunks, planner)]

    assert planned() == [HostedCommand]
    trusted[code_key(KERNEL)] = cubin_bytes(Cubin(elf(), KERNEL.entry, 256, 0))
    assert planned() == [LibrarySequenceCommand]


def code_of(executable: Executable) -> dict[str, bytes]:
    return {key: get() for key, get in triton_code(executable, "sm_90", DEFAULT).items()}


@with_triton
def test_a_trusted_file_has_all_code(
    trusted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, _ = cudnn_pair(Problem(BF16, h=4, s=33, t=35))
    for text in (CASES["rows in bf16"].text, call.text):
        executable = compiled_for_gpu(text)
        code = triton_code(executable, "sm_90", DEFAULT)
        assert code
        data = save_bytes(executable, code_bytes(code))
        load_bytes(data)
        assert trusted == {}, "an untrusted file"
        loaded = load_bytes(data, trusted=True)
        assert trusted == {key: get() for key, get in code.items()}
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "triton", None)
            assert code_of(loaded) == trusted
            with pytest.raises(GpuLibraryError, match="no code for sm_100 and needs Triton"):
                triton_code(loaded, "sm_100", DEFAULT)
        trusted.clear()


@with_triton
def test_the_command(tmp_path: Path, trusted: dict[str, bytes]) -> None:
    module, file = tmp_path / "m.hlo", tmp_path / "m.spmdx"
    module.write_text(CASES["rows in bf16"].text)
    command = ["compile", str(module), "--machine", "dgx-h200", "-o", str(file)]
    assert main([*command, "--gpu-code", "sm_90"]) == 0
    load_bytes(file.read_bytes(), trusted=True)
    (code,) = trusted.values()
    assert cubin_arch(code[8:]) == "sm_90"
    trusted.clear()
    assert main(command) == 0
    load_bytes(file.read_bytes(), trusted=True)
    assert trusted == {}


def test_an_architecture_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "m.hlo", "-o", str(tmp_path / "f"), "--gpu-code", "h200"]) == 2
    assert "expected an architecture such as sm_90, found 'h200'" in capsys.readouterr().err
