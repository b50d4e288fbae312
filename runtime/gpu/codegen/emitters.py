"""Table of functions that emit kernel records for a GPU, by kind. Importing ``ptx_module`` fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from runtime.gpu.codegen.launch import KernelSource, PtxTarget
from runtime.program.kernel import Kernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry


@dataclass(frozen=True, slots=True)
class GpuArrays:
    """Layouts of the arrays of a kernel, and the GPU that runs it."""

    operands: tuple[StridedView, ...]
    results: tuple[StridedView, ...]
    scratch: tuple[StridedView, ...]
    target: PtxTarget


#: Consecutive launches; None if the kernel has no GPU code for such arrays.
Sources: TypeAlias = tuple[KernelSource, ...] | None

K = TypeVar("K", bound=Kernel)
EMITTERS: Registry[type[Kernel], Callable[..., Sources]] = Registry("GPU form")


def kernel_emitter(
    kind: type[K],
) -> Callable[[Callable[[K, GpuArrays], Sources]], Callable[[K, GpuArrays], Sources]]:
    """Return a decorator that registers a function that emits records of ``kind`` for a GPU."""

    def decorator(emitter: Callable[[K, GpuArrays], Sources]) -> Callable[[K, GpuArrays], Sources]:
        EMITTERS.add(kind, emitter)
        return emitter

    return decorator


def sources(kernel: Kernel, arrays: GpuArrays) -> Sources:
    """Return the launches of a record; None if it has no GPU code."""
    emitter = EMITTERS.get(type(kernel))
    return None if emitter is None else emitter(kernel, arrays)
