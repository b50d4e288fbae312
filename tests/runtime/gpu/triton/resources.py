"""Registers and memory of cubins, as Triton's cuobjdump reports them; no GPU is needed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runtime.gpu.triton.compilation import compile_kernel
from runtime.gpu.triton.kernel import TritonKernel


@dataclass(frozen=True)
class Resources:
    """Registers of a thread, bytes of its values that are in memory, warps and shared bytes of a block."""

    registers: int
    spilled: int
    warps: int
    shared: int


def resources(kernel: TritonKernel, arch: str) -> Resources:
    made = compile_kernel(kernel, arch)
    package = importlib.util.find_spec("triton")
    assert package is not None
    assert package.origin is not None
    tool = Path(package.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(made.asm["cubin"])
        command = [tool, "-res-usage", file]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", said)
    assert used is not None, said
    registers, stack, local = map(int, used.groups())
    return Resources(registers, stack + local, made.metadata.num_warps, made.metadata.shared)
