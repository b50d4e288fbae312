"""Calls of library functions, as plain data without their arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod

from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, Work
from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


class LibraryCall(ABC):
    """Arguments of a library's function, without its arrays."""

    @abstractmethod
    def on(self, name: str, arrays: tuple[DeviceView, ...]) -> Work:
        """Return the call's work on ``arrays``; ``name`` is the thunk's."""
        ...

    @property
    @abstractmethod
    def can_be_captured(self) -> bool:
        """True if a CUDA graph may contain the call."""
        ...

    @property
    @abstractmethod
    def waits(self) -> bool:
        """True if the library may let the host wait for the stream."""
        ...


@dataclass(frozen=True)
class KernelCall(LibraryCall):
    """Call of the function that computes ``kernel``, on its operands and its one result."""

    kernel: Kernel
    can_be_captured = True
    waits = False

    def on(self, name: str, arrays: tuple[DeviceView, ...]) -> Work:
        *operands, result = arrays
        work = library_work(name, self.kernel, KernelArraysOnDevice(tuple(operands), (result,)))
        assert work is not None, "planned with it"
        return work
