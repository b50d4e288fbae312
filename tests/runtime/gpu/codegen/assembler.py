"""Run NVIDIA's assembler, which needs no GPU: whether it accepts a text, and what it says of registers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.codegen.ptx_module import ptx_text

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


@cache
def cuda_tool(name: str) -> str | None:
    """Return the path of a program of CUDA's toolkit in a wheel of NVIDIA or in Triton's, else where the shell finds it."""
    for wheel, place in (("nvidia", "*"), ("triton", "backends/nvidia")):
        package = importlib.util.find_spec(wheel)
        for folder in (package.submodule_search_locations or ()) if package else ():
            for found in sorted(Path(folder).glob(f"{place}/bin/{name}")):
                return str(found)
    return shutil.which(name)


def assembler() -> str | None:
    """Return the path of ptxas, or None."""
    return cuda_tool("ptxas")


needs_assembler = pytest.mark.skipif(
    assembler() is None, reason="there is no ptxas: the wheel nvidia-cuda-nvcc brings it"
)


@dataclass(frozen=True)
class Assembled:
    """Bytes of registers' values that went to memory, and registers of a thread."""

    spilled: int
    registers: int


@cache
def assembled(text: str, arch: str) -> Assembled:
    """Assemble a text and return what ptxas says of it; many launches have the same text."""
    command = assembler()
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(text)
        done = subprocess.run(
            [command, "-v", f"-arch={arch}", str(source), "-o", str(Path(folder, "kernel.cubin"))],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
    registers = re.search(r"Used (\d+) registers", done.stderr)
    assert spilled is not None
    assert registers is not None
    return Assembled(int(spilled[1]) + int(spilled[2]), int(registers[1]))


def accepted(found: tuple[KernelSource, ...] | None, *architectures: str) -> list[Assembled]:
    assert found is not None
    return [
        assembled(ptx_text(source.ir, arch), arch)
        for source in found
        for arch in architectures or ARCHITECTURES
    ]
