"""Launches of kernel records, and their compilation from LLVM IR to PTX text.

LLVM's NVPTX back end, which is part of llvmlite's wheel, compiles the IR.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm

from runtime.codegen.llvm.jit import CodegenError
from runtime.codegen.llvm.parallel_compile import run_passes
from runtime.gpu.codegen import (  # noqa: F401 - they fill the table
    copy,
    dot,
    gather,
    loop,
    program_reduce,
    random_bits,
    reduce_window,
    scatter,
    sort,
    split_rows,
)
from runtime.gpu.codegen.emitters import GpuArrays, sources
from runtime.gpu.codegen.entry_names import named
from runtime.gpu.codegen.launch import (
    GpuTarget,
    KernelSource,
)
from runtime.program.kernel import Kernel
from runtime.program.strides import StridedView
from spmd.errors import UnsupportedError

_TRIPLE = "nvptx64-nvidia-cuda"
#: Compute capability times ten -> oldest PTX version that supports it and all instructions that are used, times ten.
_VERSIONS = {80: 80, 86: 80, 87: 80, 89: 80, 90: 80, 100: 86, 103: 88, 120: 87}
#: Largest number of cached PTX texts.
_MOST_TEXTS = 4096
#: Only one thread at a time may use llvmlite's target machines.
_LOCK = threading.Lock()


def launches_for(
    kernel: Kernel,
    operands: Sequence[StridedView],
    results: Sequence[StridedView],
    scratch: Sequence[StridedView],
    target: GpuTarget,
) -> tuple[KernelSource, ...] | None:
    """Return the launches that compute ``kernel``, in order; none if there is nothing to compute.

    The views are relative to pointers that are multiples of ``launch.ALIGNMENT`` bytes (``launch.anchored``). Equal
    arguments give equal launches. Returns None if the kernel has no PTX code for arrays of these layouts. Raises
    UnsupportedError if the compute capability of ``target`` is less than 8.0.
    """
    known_capability(target.arch)
    arrays = GpuArrays(tuple(operands), tuple(results), tuple(scratch), target)
    found = sources(kernel, arrays)
    if found is None:
        return None
    return tuple(named(source, kernel) for source in found)


@lru_cache(_MOST_TEXTS)
def ptx_text(ir: str, arch: str) -> str:
    """Return the PTX text of the LLVM IR ``ir`` for ``arch``, for example sm_90. Results are cached.

    Raises CodegenError if LLVM rejects the IR.
    """
    with _LOCK:
        machine, options = _machine(arch), llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = False
        options.slp_vectorization = False
        try:
            module = llvm.parse_assembly(ir, llvm.create_context())
            module.triple = _TRIPLE
            module.data_layout = str(machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"LLVM refuses generated code: {error}") from error
        builder = llvm.create_pass_builder(machine, options)
        run_passes(builder.getModulePassManager(), module, builder)
        return str(machine.emit_assembly(module))


@cache
def _machine(arch: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(_TRIPLE)
    capability = known_capability(arch)
    features = f"+ptx{_VERSIONS[capability]}"
    return target.create_target_machine(cpu=f"sm_{capability}", features=features, opt=3)


def known_capability(arch: str) -> int:
    """Return the largest supported compute capability, times ten, that is at most that of ``arch``.

    A GPU runs PTX of earlier compute capabilities. Raises UnsupportedError if that of ``arch`` is less than 8.0.
    """
    own = int("".join(filter(str.isdigit, arch)))
    found = max((each for each in _VERSIONS if each <= own), default=None)
    if found is None:
        raise UnsupportedError(
            f"kernels need a GPU of compute capability 8.0 or more, found {arch}"
        )
    return found
