"""Table of the functions that emit GPU code, by class of kernel record. Importing ``ptx_module`` fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from runtime.gpu.codegen.launch import GpuTarget, KernelSource
from runtime.program.kernel import Kernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry


@dataclass(frozen=True, slots=True)
class GpuArrays:
    """Layouts of the arrays of a kernel relative to aligned pointers (``anchored``), and the GPU that runs it."""

    operands: tuple[StridedView, ...]
    results: tuple[StridedView, ...]
    scratch: tuple[StridedView, ...]
    target: GpuTarget


#: Launches that run in order and compute a kernel, or None if it has no GPU code for arrays of these layouts.
Sources: TypeAlias = tuple[KernelSource, ...] | None

K = TypeVar("K", bound=Kernel)
EMITTERS: Registry[type[Kernel], Callable[..., Sources]] = Registry("GPU form")


def kernel_emitter(
    kind: type[K],
) -> Callable[[Callable[[K, GpuArrays], Sources]], Callable[[K, GpuArrays], Sources]]:
    """Return a decorator that registers a function as the emitter of GPU code for kernels of class ``kind``."""

    def decorator(emitter: Callable[[K, GpuArrays], Sources]) -> Callable[[K, GpuArrays], Sources]:
        EMITTERS.add(kind, emitter)
        return emitter

    return decorator


def sources(kernel: Kernel, arrays: GpuArrays) -> Sources:
    """Return the launches that compute ``kernel`` on ``arrays`` in order, or None if it has no GPU code."""
    emitter = EMITTERS.get(type(kernel))
    return None if emitter is None else emitter(kernel, arrays)
