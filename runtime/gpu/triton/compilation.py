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
from runtime.gpu.triton.saved_code import Cubin, most_shared, trusted_cubin

_INSTALL = 'pip install "spmd-executor[gpu]"'
_LOCK = threading.Lock()


def compiled(kernel: TritonKernel, arch: str) -> Cubin:
    """Return ``kernel`` compiled for ``arch``, for example sm_90.

    It is compiled once in a process, unless a file that the user trusts has its code. Raises GpuLibraryError if Triton
    is not installed or rejects the kernel, or if it needs too much shared memory.
    """
    if (saved := trusted_cubin(kernel, arch)) is not None:
        return saved
    with _LOCK:
        return _compiled(kernel, arch)


@cache
def _compiled(kernel: TritonKernel, arch: str) -> Cubin:
    made = compile_kernel(kernel, arch)
    most = most_shared(arch)
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
            f"{kernel.entry} has no code for {arch} and needs Triton, which cannot be imported ({error}): {_INSTALL}, "
            f"or run a file of `spmd compile --gpu-code {arch}` with --trust"
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
