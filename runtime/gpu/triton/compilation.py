"""Compilation of Triton kernels to cubins, ahead of time: it needs Triton but no GPU."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from runtime.gpu.codegen.launch import WARP
from runtime.gpu.errors import GpuLibraryError
from runtime.gpu.triton.kernel import TritonKernel
from spmd.lazy_dataclass import dataclass

_INSTALL = 'pip install "spmd-executor[gpu]"'
_LOCK = threading.Lock()
#: Largest shared memory of a block in bytes, by architecture, and on those that are not named. If a kernel needs more,
#: it loads fewer blocks ahead.
_MOST_SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10, "sm_103": 227 << 10}
_LEAST_SHARED = 99 << 10


@dataclass(frozen=True, slots=True)
class Cubin:
    """Compiled kernel.

    image: the module. entry: name of the kernel function in it. threads, shared_bytes: threads and shared memory of a
    block.
    """

    image: bytes
    entry: str
    threads: int
    shared_bytes: int


def compiled(kernel: TritonKernel, arch: str) -> Cubin:
    """Return ``kernel`` compiled for ``arch``, for example sm_90. It is compiled once in a process.

    Raises GpuLibraryError if Triton is not installed or rejects the kernel, or if it needs too much shared memory.
    """
    with _LOCK:
        return _compiled(kernel, arch)


@cache
def _compiled(kernel: TritonKernel, arch: str) -> Cubin:
    made = compile_kernel(kernel, arch)
    most = _MOST_SHARED.get(arch, _LEAST_SHARED)
    while made.metadata.shared > most and kernel.stages > 1:
        kernel = replace(kernel, stages=kernel.stages - 1)
        made = compile_kernel(kernel, arch)
    metadata = made.metadata
    if metadata.shared > most:
        raise GpuLibraryError(
            f"{kernel.entry} needs {metadata.shared:,} bytes of shared memory, of which {arch} has {most:,}"
        )
    assert not metadata.global_scratch_size, "only kernels that make tensor descriptors need it"
    threads = WARP * metadata.num_warps
    return Cubin(made.asm["cubin"], metadata.name, threads, metadata.shared)


def compile_kernel(kernel: TritonKernel, arch: str) -> Any:
    """Return Triton's CompiledKernel of ``kernel`` for ``arch``. Raises GpuLibraryError."""
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        raise GpuLibraryError(
            f"{kernel.entry} needs Triton, which cannot be imported ({error}): {_INSTALL}"
        ) from error
    backends = importlib.import_module("triton.backends.compiler")
    compiler = importlib.import_module("triton.compiler")
    target = backends.GPUTarget("cuda", int(arch.removeprefix("sm_")), WARP)
    with tempfile.TemporaryDirectory(prefix="spmd_triton_") as folder:
        function = getattr(loaded(kernel.text, Path(folder)), kernel.entry)
        names = function.arg_names
        source = compiler.ASTSource(
            function,
            dict(zip(names, kernel.signature, strict=True)),
            attrs={
                (i,): [["tt.divisibility", 16]]
                for i, aligned in enumerate(kernel.aligned)
                if aligned
            },
        )
        options = {
            "num_warps": kernel.warps,
            "num_stages": kernel.stages,
            "enable_fp_fusion": True,
        }
        try:
            return triton.compile(source, target=target, options=options)
        except triton.errors.TritonError as error:
            raise GpuLibraryError(f"Triton rejects {kernel.entry}: {error}") from error


def loaded(text: str, folder: Path) -> ModuleType:
    """Return the module with the generated source ``text``, which Triton reads from a file in ``folder``."""
    path = folder / "triton_kernel.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
