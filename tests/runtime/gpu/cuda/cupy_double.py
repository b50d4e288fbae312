"""Enough of CuPy, on the host's memory, for the driver's own code (runtime/gpu/cuda*.py) to run without a GPU.

Calls of the runtime that synchronize the device are refused while a thread captures, as CUDA refuses them.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.runtime.gpu.doubles.host_streams import HostGpu

_LOAD = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


class CupyError(RuntimeError):
    """An error of CUDA."""


class CupyDouble:
    """One GPU of which CuPy speaks.

    calls: names of the runtime's functions that were called, in order. attributes: what functions were set to.
    launches: function, sizes with shared memory, and the address of the parameters of each launch.
    """

    def __init__(self) -> None:
        self.gpu = HostGpu()
        self.calls: list[str] = []
        self.live_bytes = 0
        self.libcuda = SimpleNamespace(cuModuleLoadDataEx=_LOAD(self.module_load))
        self.loaded: list[bytes] = []
        self.attributes: list[tuple[object, int, int]] = []
        self.launches: list[tuple[object, tuple[int, ...], int]] = []

    # ---- libcuda
    def module_load(self, handle: int, text: bytes, count: int, options: int, values: int) -> int:
        """cuModuleLoadDataEx: a text without an entry is refused, with a word in the log; a cubin is an ELF file."""
        names = (ctypes.c_int * count).from_address(options)
        given = dict(zip(names, (ctypes.c_void_p * count).from_address(values), strict=True))
        if b".entry" not in text and not text.startswith(b"\x7fELF"):
            said = b"ptxas application ptx input, line 1; fatal"[: given[6] - 1]
            ctypes.memmove(given[5], said + b"\0", len(said) + 1)
            return 218
        self.loaded.append(text)
        ctypes.c_void_p.from_address(handle).value = len(self.loaded)
        return 0

    # ---- cupy.cuda.runtime
    def memset(self, address: int, value: int, num_bytes: int) -> None:
        self.gpu.refuse_beside_captures("work on the default stream")
        self._fill("memset", address, value, num_bytes)

    def memset_async(self, address: int, value: int, num_bytes: int, stream: int) -> None:
        assert stream, "the default stream"
        self._fill("memsetAsync", address, value, num_bytes)

    def device_synchronize(self) -> None:
        self.calls.append("deviceSynchronize")
        self.gpu.synchronize()

    # ---- cupy_backends.cuda.api.driver
    def set_attribute(self, function: object, attribute: int, value: int) -> None:
        self.attributes.append((function, attribute, value))

    def launch(self, function: object, *arguments: int) -> None:
        *sizes, stream, parameters, extra = arguments
        assert stream, "the default stream"
        assert extra == 0
        self.launches.append((function, tuple(sizes), parameters))

    def _fill(self, name: str, address: int, value: int, num_bytes: int) -> None:
        self.calls.append(name)
        ctypes.memset(address, value, num_bytes)

    def modules(self) -> dict[str, ModuleType]:
        """The modules by their names."""
        own = self

        class Memory:
            def __init__(self, num_bytes: int) -> None:
                self._array = np.full(num_bytes, 7, np.uint8)
                self.ptr = self._array.ctypes.data
                own.live_bytes += num_bytes

            def __del__(self) -> None:
                own.calls.append("free")
                own.live_bytes -= self._array.size

        class Stream:
            ptr = 1

            def __init__(self, *, non_blocking: bool, priority: int | None = None) -> None:
                assert non_blocking, "the default stream waits for it"

            def synchronize(self) -> None:
                own.calls.append("streamSynchronize")

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def use(self) -> None:
                pass

        runtime = module(
            "cupy.cuda.runtime",
            memset=self.memset,
            memsetAsync=self.memset_async,
            deviceSynchronize=self.device_synchronize,
            memcpyAsync=lambda target, source, size, _, __: ctypes.memmove(target, source, size),
            memcpyDefault=4,
            memcpyHostToDevice=1,
            getDeviceProperties=lambda _: {
                "name": b"a double",
                "major": 9,
                "minor": 0,
                "multiProcessorCount": 132,
            },
            memGetInfo=lambda: (1 << 30, 1 << 30),
            CUDARuntimeError=CupyError,
            **{f"CUDA_{kind}": number for number, kind in enumerate(("R_32F", "R_64F", "R_16F"))},
            **{f"CUDA_{kind}": 4 + number for number, kind in enumerate(("C_32F", "C_64F"))},
        )
        driver = module(
            "cupy_backends.cuda.api.driver",
            CUDADriverError=CupyError,
            moduleGetFunction=lambda handle, name: (handle, name),
            funcSetAttribute=self.set_attribute,
            launchKernel=self.launch,
        )
        memory = module("cupy.cuda.memory", Memory=Memory, OutOfMemoryError=MemoryError)
        nvtx = module("cupy.cuda.nvtx")
        cuda = module(
            "cupy.cuda",
            runtime=runtime,
            memory=memory,
            nvtx=nvtx,
            Stream=Stream,
            Device=Device,
        )
        api = module("cupy_backends.cuda.api", driver=driver)
        backends = module("cupy_backends.cuda", api=api)
        found = (
            module("cupy", cuda=cuda),
            cuda,
            runtime,
            memory,
            nvtx,
            module("cupy_backends", cuda=backends),
            backends,
            api,
            driver,
        )
        return {one.__name__: one for one in found}


def module(name: str, **members: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


@contextmanager
def cupy_double() -> Iterator[CupyDouble]:
    """Have ``runtime.gpu.cuda`` import the double; imported modules are forgotten before and after."""
    double = CupyDouble()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.startswith("runtime.gpu.cuda.")]:
            patch.delitem(sys.modules, name)
        for name, one in double.modules().items():
            patch.setitem(sys.modules, name, one)
        modules = importlib.import_module("runtime.gpu.cuda.modules")
        patch.setattr(modules, "load_cuda", lambda: double.libcuda)
        own = importlib.import_module("runtime.gpu.cuda")
        before = dict(vars(own))
        try:
            yield double
        finally:
            for name in [name for name in sys.modules if name.startswith("runtime.gpu.cuda.")]:
                del sys.modules[name]
            for name in set(vars(own)) - set(before):
                delattr(own, name)
            vars(own).update(before)
