"""Kernels: plain records of computations on arrays, and the library of functions that bind them to memory.

A kernel record names no memory. The records are in ``runtime/program/records``; the functions that bind them to native
code of the CPU are in ``runtime/cpu/kernels``. The GPU back end has its own tables for the same records.
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
    """Base class of kernel records. Each kind of kernel is a frozen dataclass; records with equal fields are equal."""


@dataclass(frozen=True, slots=True)
class KernelArrays:
    """Arrays of a kernel call: views of the device's memory, with any strides.

    A result shares memory with an operand only if the op's lowering allows it. Scratch has no content between calls.
    """

    operands: tuple[NDArray, ...]
    results: tuple[NDArray, ...]
    scratch: tuple[NDArray, ...] = ()


K = TypeVar("K", bound=Kernel)
Bind: TypeAlias = Callable[[K, KernelArrays], Action]


class KernelLibrary(Registry[str, Bind[Kernel]]):
    """Functions that bind kernel records to arrays, by the name of the record's class."""

    def binds(self, kind: type[K]) -> Callable[[Bind[K]], Bind[K]]:
        """Return a decorator that registers a function as the binder of records of class ``kind``."""

        def decorator(binder: Bind[K]) -> Bind[K]:
            self.add(kind.__name__, binder)  # type: ignore[arg-type]
            return binder

        return decorator

    def bind(self, kernel: Kernel, arrays: KernelArrays) -> Action:
        """Return an action that computes ``kernel`` on ``arrays`` each time it is called."""
        return self[type(kernel).__name__](kernel, arrays)


#: Binders of the CPU back end. ``runtime.cpu.kernels`` names the modules that register them.
CPU_KERNELS = KernelLibrary("CPU kernels")
