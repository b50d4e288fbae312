"""Kernels: plain records of computations on arrays, and the library that makes them callable.

A kernel does not depend on memory: thunks bind it to arrays. Kernels of one kind are in
``runtime/cpu/kernels/<kind>.py``, with the functions that bind them to native code for the processor. Other devices
register other binders for the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias, TypeVar

from spmd.literal import NDArray

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


class KernelLibrary:
    """Binders by kernel kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._binders: dict[type[Kernel], Bind[Kernel]] = {}
        #: By the name of a kind: the module that binds it, which is imported when the first such kernel is bound.
        self._modules: dict[str, str] = {}

    def import_at_need(self, modules: Mapping[str, Iterable[str]]) -> None:
        """Name the modules that bind kernels of these kinds. Each is imported when the first such kernel is bound."""
        for module, kinds in modules.items():
            self._modules.update(dict.fromkeys(kinds, module))

    def import_all(self) -> None:
        """Import the modules of all kinds now, so that later measurements do not contain the imports."""
        for module in dict.fromkeys(self._modules.values()):
            import_module(module)

    def binds(self, kind: type[K]) -> Callable[[Bind[K]], Bind[K]]:
        """Return a decorator for a function that turns records of ``kind`` and arrays into actions."""

        def decorator(binder: Bind[K]) -> Bind[K]:
            if kind in self._binders:
                raise ValueError(f"{self.name}: {kind.__name__} is registered twice")
            self._binders[kind] = binder  # type: ignore[assignment]
            return binder

        return decorator

    def bind(self, kernel: Kernel, arrays: KernelArrays) -> Action:
        kind = type(kernel)
        if kind not in self._binders and kind.__name__ in self._modules:
            import_module(self._modules[kind.__name__])
        return self._binders[kind](kernel, arrays)


#: On processor cores; ``runtime.cpu.kernels`` names the modules of its binders.
CPU_KERNELS = KernelLibrary("CPU kernels")
