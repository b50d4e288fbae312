"""In-process compiler for LLVM IR: text in, function addresses out.

IR uses opaque pointers and names no target: the module gets the host's triple and data layout, passes for the host's
CPU optimize it (ir_compiler.py), and ORC links it (library.py). Code that is found in a cache is only linked, for
which llvmlite is not imported. If its IR is a ``DeferredIr``, the module that writes IR is not imported either.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.codegen.llvm.library import (
    LinkedCode,
    Linker,
    compiler_versions,
    host_processor,
    llvm_version,
)
from runtime.codegen.llvm.object_cache import ObjectCache, key_of
from spmd.errors import SpmdError
from spmd.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from runtime.codegen.llvm.ir_compiler import IrCompiler
    from runtime.codegen.llvm.perf_map import PerfMap


class Passes(Enum):
    """Optimization level of IR. All levels inline functions marked ``alwaysinline``."""

    TIDY = "tidy"
    """Values leave the stack, instructions and branches are combined; loops stay as they are written. For code that is
    written as it should run, including its vectors. Takes a tenth of the time of the other levels.
    """
    CALL = "call"
    """TIDY, and machine code is made without optimization, in a fifth of the time. For code that calls other code,
    such as the loop over thunks: 15.7 ns a thunk instead of 14.7 (benchmarks/native/dispatch.py).
    """
    VECTORIZE = "vectors"
    """Loops over elements become loops over vectors, none is unrolled: memory limits most of them. On x86
    with AVX2 or AVX-512 the project's vectorizer writes them, and they are only tidied (vectorizer/loops.py).
    """
    UNROLL = "unroll"
    """VECTORIZE, and loops are unrolled: for those that compute more than they load."""

    @property
    def codegen_level(self) -> int:
        """The level of LLVM's target machine: 0 selects instructions one by one; 1 to 3 take equally long."""
        return 0 if self is Passes.CALL else 3


class CodegenError(SpmdError):
    """LLVM rejects IR that this project wrote: a defect, never bad input."""

    exit_code = 3


@dataclass(frozen=True)
class DeferredIr:
    """IR that ``function`` of ``module`` returns for ``arguments``. It is written only if its code is in no cache.

    It must depend on nothing but the arguments, the processor and the project's sources. Arguments are frozen
    dataclasses, enumerations, tuples and plain values, whose repr names all that they hold.
    """

    module: str
    function: str
    arguments: tuple[object, ...] = ()

    @cached_property
    def text(self) -> str:
        # Deferred: a run whose code is in a cache spends no time on modules that write IR.
        written: str = getattr(import_module(self.module), self.function)(*self.arguments)
        return written


class NativeLibrary:
    """Machine code, compiled on its own thread and linked at first use.

    Addresses are valid as long as this object lives.
    """

    def __init__(
        self,
        code: Callable[[], bytes],
        link: Callable[[bytes, str], LinkedCode],
        keep: Sequence[object],
        key: str,
        source: tuple[str, Passes] | None = None,
    ) -> None:
        self._object = code
        #: Equal for libraries of the same machine code.
        self.key = key
        #: The IR and how it is optimized, if the compiler keeps sources.
        self.source = source
        #: The first thunk that calls the code, for profilers.
        self.caller = ""
        self._link = link
        self._keep = keep
        self._once = threading.Lock()
        self._code: LinkedCode | None = None

    def address(self, name: str) -> int:
        """Return the address of the exported function ``name``. Raises CodegenError if compiling or linking failed."""
        with self._once:
            if self._code is None:
                self._code = self._link(self._object(), self.caller)
        return self._code.addresses[name]

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """Return the exported function as a ctypes callable, which releases the GIL while it runs.

        The callable does not keep the library alive.
        """
        return ctypes.CFUNCTYPE(result, *arguments)(self.address(name))


class Jit:
    """Compiler for the host, on as many threads as this process has cores. One thread at a time may call it.

    processor: LLVM's name of a processor whose instructions the host has, and features; by default the host itself.
    ``cache``: cache of machine code, or None. ``made_by``: all inputs of machine code except the IR.
    """

    def __init__(self, processor: tuple[str, str] | None = None) -> None:
        self.cache: ObjectCache | None = None
        #: Machine code by its key, of which the user trusts the file; asked after the cache.
        self.trusted_code: dict[str, bytes] = {}
        #: What gives the machine code of each key that was asked for; None if nobody collects it.
        self.collected: dict[str, Callable[[], bytes]] | None = None
        #: Digest of the project's sources, by which the code of a DeferredIr is found; None: IR is always written.
        self.sources: str | None = None
        #: Whether libraries keep their IR, for listings of kernels.
        self.keeps_sources = False
        #: Where the addresses of functions are written for profilers; None if they are not.
        self.perf_map: PerfMap | None = None
        self._processor = processor or (host_processor()[0], _features())
        self.made_by = (*compiler_versions(), *self._processor, _code_of_compiler())
        self._linker = Linker(self._processor)

    def compile(
        self,
        ir: str | DeferredIr,
        exports: Sequence[str],
        symbols: Mapping[str, int | NativeLibrary] | None = None,
        keep: Sequence[object] = (),
        *,
        passes: Passes = Passes.VECTORIZE,
    ) -> NativeLibrary:
        """Optimize and link ``ir``. If it is not valid IR, requests for an address raise CodegenError.

        Code that does not link is emitted again, once, because it may have come from the cache.

        exports: functions whose addresses are needed; all others should be ``internal``.
        symbols: addresses of functions that ``ir`` declares but does not define, or the libraries that export them; C's
        memcpy and memset are known.
        keep: objects that must live as long as the code, such as the data behind ``symbols``.
        """

        def linked(code: bytes) -> LinkedCode:
            imports = {
                name: found if isinstance(found, int) else found.address(name)
                for name, found in (symbols or {}).items()
            }
            return self._linker.link(code, imports, exports)

        def link(code: bytes, caller: str) -> LinkedCode:
            library = relinked(code)
            if self.perf_map is not None:
                self.perf_map.add(code, library.addresses, caller)
            return library

        def relinked(code: bytes) -> LinkedCode:
            try:
                return linked(code)
            except RuntimeError:
                pass
            code = self.compiler.emit(_text(ir), passes)
            if self.cache is not None:
                self.cache.put(self._key(_text(ir), passes), code)
            try:
                return linked(code)
            except RuntimeError as error:
                raise CodegenError(f"LLVM does not link generated code: {error}") from error

        source = (_text(ir), passes) if self.keeps_sources else None
        key = self._key(ir, passes) if isinstance(ir, str) else self._deferred_key(ir, passes)
        code = self._object(key, ir, passes)
        return NativeLibrary(code, link, (self, symbols, *keep), key, source)

    def listing(self, ir: str, passes: Passes) -> tuple[str, str]:
        """Return the optimized IR of ``ir`` and the assembly that becomes its machine code."""
        return self.compiler.listing(ir, passes)

    def _object(self, key: str, ir: str | DeferredIr, passes: Passes) -> Callable[[], bytes]:
        """Return machine code, compiled unless this LLVM has compiled it for this processor before."""
        known = self._known(key)
        code = (lambda: known) if known is not None else self._started(key, _text(ir), passes)
        if self.collected is not None:
            self.collected[key] = code
        return code

    def _known(self, key: str) -> bytes | None:
        """Return the entry of the cache, or of a file that the user trusts."""
        known = None if self.cache is None else self.cache.get(key)
        return known or self.trusted_code.get(key)

    def _deferred_key(self, ir: DeferredIr, passes: Passes) -> str:
        """Return the key of the machine code of ``ir``, which is the entry under the key of all that IR depends on."""
        if self.sources is None:
            return self._key(ir.text, passes)
        variant = self._key(f"{self.sources} {ir!r}", passes)
        known = self._known(variant)
        key = self._key(ir.text, passes) if known is None else known.decode()
        if known is None and self.cache is not None:
            self.cache.put(variant, key.encode())
        if self.collected is not None:
            self.collected[variant] = key.encode
        return key

    def _started(self, key: str, ir: str, passes: Passes) -> Callable[[], bytes]:
        if self.cache is None:
            return self.compiler.start(ir, passes)
        return self.compiler.start_shared(ir, passes, self.cache, key)

    def _key(self, ir: str, passes: Passes) -> str:
        """Return a key of all inputs of machine code."""
        return key_of((*self.made_by, passes.value, ir))

    @cached_property
    def compiler(self) -> IrCompiler:
        """Compiler of the code that is in no cache."""
        # Code from the cache needs neither llvmlite nor threads.
        from runtime.codegen.llvm.ir_compiler import IrCompiler

        return IrCompiler(self._processor)


def _text(ir: str | DeferredIr) -> str:
    return ir if isinstance(ir, str) else ir.text


@cache
def _code_of_compiler() -> str:
    """Return a digest of the modules between IR and machine code, whose changes make the same IR other code."""
    folder = Path(__file__).parent
    files = [*folder.glob("*.py"), *(folder.parent / "vectorizer").glob("*.py")]
    return key_of(file.read_text("utf-8") for file in sorted(files))


def _features() -> str:
    """Return the host's features, with its widest vectors if these do not reduce the clock rate.

    LLVM uses 256 bits on processors that slow down for wider vectors; those with AVX-512 FP16 (from Sapphire Rapids on)
    do not.
    """
    features = host_processor()[1]
    wide = ",-prefer-256-bit" if features.get("avx512fp16", False) else ""
    flags = (f"{'+' if there else '-'}{name}" for name, there in sorted(features.items()))
    return ",".join(flags) + wide


@cache
def host_jit() -> Jit:
    """Return the process's compiler, created at first use."""
    return Jit()


@cache
def host_has(*features: str) -> bool:
    """Return whether the processor has the features and the system enables them, by LLVM's names."""
    found = host_processor()[1]
    return all(found.get(feature, False) for feature in features)


@cache
def host_fuses() -> bool:
    """Return whether the host has a fused multiply-add. Without one, LLVM calls the C library's, which is slow."""
    if os.uname().machine == "x86_64":
        return host_has("fma")
    return os.uname().machine in ("aarch64", "arm64")


@cache
def host_scales() -> bool:
    """Return whether the host scales by powers of two in one instruction, which this LLVM emits for ``llvm.ldexp``."""
    return (
        os.uname().machine == "x86_64" and host_has("avx512f", "avx512vl") and llvm_version() >= 22
    )


@cache
def host_permutes() -> bool:
    """Return whether the host selects 16 numbers out of 32 in two registers in one instruction."""
    return os.uname().machine == "x86_64" and host_has("avx512f", "avx512vl")


@cache
def host_adds_pairs() -> bool:
    """Return whether the host multiplies pairs of 16-bit integers and adds both products in one instruction."""
    return os.uname().machine == "x86_64" and host_has("avx512vnni", "avx512vl")
