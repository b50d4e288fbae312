"""Calls of library functions in sequences, as plain data without arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod

from runtime.gpu.libraries.library_emitters import library_work
from runtime.gpu.views import DeviceView
from runtime.gpu.work import KernelArraysOnDevice, Work
from runtime.program.kernel import Kernel
from spmd.lazy_dataclass import dataclass


class LibraryCall(ABC):
    """Call of a library function: all its arguments except the arrays."""

    @abstractmethod
    def on(self, arrays: tuple[DeviceView, ...]) -> Work:
        """Return the work that runs the call on ``arrays``."""
        ...

    @property
    @abstractmethod
    def can_be_captured(self) -> bool:
        """True if a CUDA graph may contain the call; otherwise it may block the host until the stream is idle."""
        ...


@dataclass(frozen=True)
class KernelCall(LibraryCall):
    """Call of the library function that computes ``kernel``, on the kernel's operands and its only result."""

    kernel: Kernel
    can_be_captured = True

    def on(self, arrays: tuple[DeviceView, ...]) -> Work:
        *operands, result = arrays
        work = library_work(self.kernel, KernelArraysOnDevice(tuple(operands), (result,)))
        assert work is not None, "planned with it"
        return work
