"""Kernels: plain records of computations on arrays, and the library that makes them callable.

A kernel does not depend on memory: thunks bind it to arrays. Kernels of one kind are in
``runtime/cpu/kernels/<kind>.py``, with the functions that bind them to native code for the processor. Other devices
register other binders for the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.registry import Registry

#: Callable with bound arguments: each call reads and writes the arrays given at bind time.
Action: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Kernel:
    """Base of the kernel records, one frozen dataclass per kind."""


@dataclass(frozen=True, slots=True)
class KernelArrays:
    """Arrays of a kernel: views of the device's memory with any strides. Scratch has no content between calls.

    If the lowering allows it, a result shares the memory of an operand.
    """

    operands: tuple[NDArray, ...]
    results: tuple[NDArray, ...]
    scratch: tuple[NDArray, ...] = ()


K = TypeVar("K", bound=Kernel)
Bind: TypeAlias = Callable[[K, KernelArrays], Action]


class KernelLibrary(Registry[str, Bind[Kernel]]):
    """Binders by the names of kernel kinds."""

    def binds(self, kind: type[K]) -> Callable[[Bind[K]], Bind[K]]:
        """Return a decorator for a function that turns records of ``kind`` and arrays into actions."""

        def decorator(binder: Bind[K]) -> Bind[K]:
            self.add(kind.__name__, binder)  # type: ignore[arg-type]
            return binder

        return decorator

    def bind(self, kernel: Kernel, arrays: KernelArrays) -> Action:
        return self[type(kernel).__name__](kernel, arrays)


#: On processor cores; ``runtime.cpu.kernels`` names the modules of its binders.
CPU_KERNELS = KernelLibrary("CPU kernels")
