"""Linker and description of the host: the C functions of LLVM that running compiled code needs.

They are called in llvmlite's shared library with the types that llvmlite declares, but without importing llvmlite. The
import would load 66 modules, and code that is found in a cache needs none of them.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from ctypes import c_bool, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint64, c_void_p
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from spmd.lazy_dataclass import dataclass

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "CreateLLJITCompiler": (c_void_p, (c_void_p, c_bool, c_bool, c_void_p)),
    "CreateTargetMachine": (
        c_void_p,
        (c_void_p, *(3 * (c_char_p,)), c_int, c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "DisposeString": (None, (c_char_p,)),
    "GetDefaultTargetTriple": (None, (c_void_p,)),
    "GetHostCPUFeatures": (c_int, (c_void_p,)),
    "GetHostCPUName": (None, (c_void_p,)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, c_void_p)),
    "GetVersionInfo": (c_uint, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "InitializeNativeTarget": (None, ()),
    "LLJIT_Dylib_Tracker_Dispose": (c_bool, (c_void_p, c_void_p)),
    "LLJIT_Link": (c_void_p, (c_void_p, c_char_p, *(3 * (c_void_p, c_size_t)), c_void_p)),
}
"""Result and argument types of llvmlite's C functions, by name without the prefix ``LLVMPY_``.

Pointers to LLVM's objects, to arrays and to output strings are ``c_void_p``.
"""

_OBJECT, _LIBRARY = 2, 3
"""Kinds of an element to link: the bytes of an object file, or a shared library; an empty name is this process."""


class _Element(ctypes.Structure):
    _fields_ = (("kind", c_uint8), ("value", c_char_p), ("length", c_size_t))


class _Symbol(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("address", c_uint64))


@cache
def llvmlite_folder() -> Path:
    """Return the folder of the installed package. Raises ModuleNotFoundError if there is none."""
    spec = PathFinder.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")
    return Path(spec.origin).parent


@cache
def _library() -> ctypes.CDLL:
    name = "libllvmlite.dylib" if sys.platform == "darwin" else "libllvmlite.so"
    return ctypes.CDLL(str(llvmlite_folder() / "binding" / name))


@cache
def function(name: str) -> Any:
    """Return llvmlite's C function ``LLVMPY_<name>``."""
    # Access by index returns a new function object, so these types do not replace those that llvmlite declares.
    found = _library()[f"LLVMPY_{name}"]
    found.restype, found.argtypes = _FUNCTIONS[name]
    return found


class _Text:
    """Output string of a C function, which receives ``address``. ``take`` then returns the string and frees it."""

    def __init__(self) -> None:
        self._pointer = c_char_p()
        self.address = ctypes.addressof(self._pointer)

    def take(self) -> str:
        """Return the string, and free the memory that LLVM allocated for it. Returns "" if none was written."""
        text = self._pointer.value
        if text is None:
            return ""
        function("DisposeString")(self._pointer)
        self._pointer.value = None
        return text.decode()


@cache
def compiler_versions() -> tuple[str, str]:
    """Return the text of llvmlite's version file, and LLVM's version as the text of a tuple."""
    number = function("GetVersionInfo")()
    parts = []
    while number:
        parts.append(number & 0xFF)
        number >>= 8
    return (llvmlite_folder() / "_version.py").read_text("utf-8"), str(tuple(reversed(parts)))


def llvm_version() -> int:
    """Return LLVM's major version."""
    return int(compiler_versions()[1].strip("(").partition(",")[0])


@cache
def host_processor() -> tuple[str, dict[str, bool]]:
    """Return LLVM's name of the host's processor, and whether it has each of the features that LLVM detects."""
    name, features = _Text(), _Text()
    function("GetHostCPUName")(name.address)
    function("GetHostCPUFeatures")(features.address)
    found = {one[1:]: one[0] == "+" for one in features.take().split(",") if one}
    return name.take(), found


@dataclass(frozen=True)
class LinkedCode:
    """Linked machine code, unloaded when nothing refers to this object. ``addresses``: address of each export."""

    addresses: dict[str, int]


class Linker:
    """Linker of object files into this process (LLVM's ORC). Threads may call it concurrently."""

    def __init__(self, processor: tuple[str, str]) -> None:
        """Create a linker for a processor, given by LLVM's name and its feature string.

        Raises RuntimeError with LLVM's message if the library knows no such target.
        """
        function("InitializeNativeTarget")()
        function("InitializeNativeAsmPrinter")()
        self._lock = threading.Lock()
        triple, problem = _Text(), _Text()
        function("GetDefaultTargetTriple")(triple.address)
        name = triple.take().encode()
        target = function("GetTargetFromTriple")(name, problem.address)
        texts = [part.encode() for part in processor]
        machine = target and function("CreateTargetMachine")(
            target, name, *texts, 3, b"default", b"jitdefault", 0, 1, b""
        )
        self._jit = machine and function("CreateLLJITCompiler")(
            machine, False, False, problem.address
        )
        if not self._jit:
            raise RuntimeError(problem.take() or "LLVM knows no such target")
        self._count = 0

    def link(self, code: bytes, imports: Mapping[str, int], exports: Sequence[str]) -> LinkedCode:
        """Link the object file ``code`` and return the addresses of its exports.

        imports: addresses of symbols by name; other symbols are looked up in this process. exports: functions of
        ``code`` whose addresses are needed. Raises RuntimeError with LLVM's message if linking fails.
        """
        elements = (_Element * 2)(_Element(_OBJECT, code, len(code)), _Element(_LIBRARY, b"", 0))
        given = (_Symbol * len(imports))(*(_Symbol(k.encode(), v) for k, v in imports.items()))
        wanted = (_Symbol * len(exports))(*(_Symbol(name.encode(), 0) for name in exports))
        problem = _Text()
        with self._lock:
            self._count += 1
            tracker = function("LLJIT_Link")(
                self._jit,
                f"spmd{self._count}".encode(),
                *(elements, len(elements), given, len(given), wanted, len(wanted)),
                problem.address,
            )
        if not tracker:
            raise RuntimeError(problem.take())
        linked = LinkedCode({name: wanted[n].address for n, name in enumerate(exports)})
        # At the end of the process code is not unloaded, because other threads may still run it.
        weakref.finalize(linked, self._unload, tracker).atexit = False
        return linked

    def _unload(self, tracker: int) -> None:
        # LLVM writes to it in any case, so that it must live until the call returns.
        problem = _Text()
        with self._lock:
            function("LLJIT_Dylib_Tracker_Dispose")(tracker, problem.address)
