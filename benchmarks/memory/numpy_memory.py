"""Bytes that NumPy holds for arrays' data: counted by an allocator put into NumPy through its C interface.

tracemalloc counts Python's objects as well, which in small programs outweigh the arrays. NumPy lets a process replace
the allocator of arrays' data (NEP 49); ours counts and passes on to the C library.
"""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any

import numpy as np

_SET_HANDLER = 304  # PyDataMem_SetHandler in NumPy's table of C functions
_CAPSULE_NAME = b"mem_handler"

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_REALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


_KEPT: list[Any] = []


class CountedArrays:
    """While entered, ``peak`` is the most bytes that arrays made in this thread since have held at one time.

    Never collected: arrays that outlive it are freed through it.
    """

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        libc = ctypes.CDLL(None)
        self._c = {name: getattr(libc, name) for name in ("malloc", "calloc", "realloc", "free")}
        for name in ("malloc", "calloc", "realloc"):
            self._c[name].restype = ctypes.c_void_p
        self._handler = _Handler(
            b"counted",
            1,
            None,
            _MALLOC(self._malloc),
            _CALLOC(self._calloc),
            _REALLOC(self._realloc),
            _FREE(self._free),
        )
        self._sizes: dict[int, int] = {}
        self._before: Any = None
        _KEPT.append(self)

    def __enter__(self) -> CountedArrays:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self._before = _set_handler(make(ctypes.addressof(self._handler), _CAPSULE_NAME, None))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _set_handler(self._before)

    def _made(self, address: int | None, size: int) -> int | None:
        if address is not None:
            self._sizes[address] = size
            self.live += size
            self.peak = max(self.peak, self.live)
        return address

    def _gone(self, address: int | None) -> None:
        if address is not None:
            self.live -= self._sizes.pop(address, 0)

    def _malloc(self, _: int | None, size: int) -> int | None:
        return self._made(self._c["malloc"](ctypes.c_size_t(size)), size)

    def _calloc(self, _: int | None, count: int, size: int) -> int | None:
        made = self._c["calloc"](ctypes.c_size_t(count), ctypes.c_size_t(size))
        return self._made(made, count * size)

    def _realloc(self, _: int | None, address: int | None, size: int) -> int | None:
        self._gone(address)
        return self._made(self._c["realloc"](ctypes.c_void_p(address), ctypes.c_size_t(size)), size)

    def _free(self, _: int | None, address: int | None, __: int) -> None:
        self._gone(address)
        self._c["free"](ctypes.c_void_p(address))


def _set_handler(capsule: Any) -> Any:
    """Install an allocator of arrays' data; the one before it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    table = pointer(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
    function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    return function(capsule)
