"""In-process compiler for LLVM IR: text in, function addresses out.

IR uses opaque pointers and names no target: the module gets the host's triple and data layout, passes for the host's
CPU optimize it (ir_compiler.py), and ORC links it (library.py). Code that is found in a cache is only linked, which
does not import llvmlite. If its IR is a ``DeferredIr``, the module that writes the IR is not imported either.
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
    """Promote stack variables to registers, and combine instructions and branches; leave loops as they are.

    It is for code that is already written in vectors and blocks, and takes a tenth of the compile time of VECTORIZE.
    """
    CALL = "call"
    """Run the passes of TIDY, then generate machine code without optimization, in a fifth of the time.

    It is for code that mainly calls longer code, such as BLAS. The loop over thunks is not such code: with TIDY a step
    of 136 rows, of which 48 are of collectives, takes 6.0 instead of 6.9 us.
    """
    VECTORIZE = "vectors"
    """Vectorize loops over elements, without unrolling, because memory limits the speed of most of them.

    On x86 with AVX2 or AVX-512 the project's vectorizer (vectorizer/loops.py) rewrites modules if it supports all of
    their loops; these then get the passes of TIDY. Other modules get LLVM's passes with its loop vectorizer.
    """
    UNROLL = "unroll"
    """Vectorize and unroll loops by LLVM's passes. It is for loops that compute more than they load."""

    @property
    def codegen_level(self) -> int:
        """Return the optimization level of LLVM's code generator: 0 for CALL, else 3.

        Level 0 selects instructions one by one. Levels 1 to 3 take equally long.
        """
        return 0 if self is Passes.CALL else 3


class CodegenError(SpmdError):
    """Error of LLVM in IR or machine code that this project generated. It reports a defect, never bad input."""

    exit_code = 3


@dataclass(frozen=True)
class DeferredIr:
    """IR that ``function`` of ``module`` returns for ``arguments``. It is written only if its code is in no cache.

    The IR must depend only on the arguments, the processor and the project's sources. Arguments must be frozen
    dataclasses, enumerations, tuples or plain values, because their ``repr``, which is part of the cache key, must show
    their entire contents.
    """

    module: str
    function: str
    arguments: tuple[object, ...] = ()

    @cached_property
    def text(self) -> str:
        """Return the IR as text. The first access writes it."""
        # The import is deferred so that a run whose code is in a cache does not import modules that write IR.
        written: str = getattr(import_module(self.module), self.function)(*self.arguments)
        return written


class NativeLibrary:
    """Machine code of one IR module. Another thread compiles it, and the first request for an address links it.

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
        #: Digest of all inputs of the machine code; equal for libraries of the same code.
        self.key = key
        #: The IR and its optimization level if ``Jit.keeps_sources`` was set, else None.
        self.source = source
        #: Name of the first thunk that calls the code, which profilers show.
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
    """Compiler and linker of IR for this host, with one compiling thread per core. One thread at a time may call it.

    processor: LLVM's name of a processor and its feature string, by default those of the host. The host must have all
    of its instructions.
    ``cache``: on-disk cache of machine code, or None. ``made_by``: inputs of the machine code other than the IR and its
    optimization level.
    """

    def __init__(self, processor: tuple[str, str] | None = None) -> None:
        self.cache: ObjectCache | None = None
        #: Machine code by key, read from a file that the user trusts. It is used for keys that ``cache`` lacks.
        self.trusted_code: dict[str, bytes] = {}
        #: For each key requested so far, a function that returns its machine code; None if code is not collected.
        self.collected: dict[str, Callable[[], bytes]] | None = None
        #: Digest of the project's sources, part of the key of a DeferredIr; None if IR is always written.
        self.sources: str | None = None
        #: Whether libraries keep their IR, for listings of kernels.
        self.keeps_sources = False
        #: Map of function addresses for profilers; None if it is not written.
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
        """Start compiling ``ir`` unless its machine code is known, and return its library, which links on first use.

        If ``ir`` is invalid or does not link, ``address`` of the library raises CodegenError. Code that does not link
        is compiled again once, because it may have come from the cache.

        exports: functions whose addresses are needed; all others should be ``internal``.
        symbols: addresses of functions that ``ir`` declares but does not define, or the libraries that export them.
        Symbols of this process, such as C's memcpy, need no entry.
        keep: objects that must live as long as the code, such as the data behind ``symbols``.
        passes: optimization level.
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
        """Return the optimized IR of ``ir``, and the assembly of its machine code.

        Raises CodegenError if LLVM rejects ``ir``.
        """
        return self.compiler.listing(ir, passes)

    def _object(self, key: str, ir: str | DeferredIr, passes: Passes) -> Callable[[], bytes]:
        """Return a function that returns the machine code of ``key``. Compilation starts now if the code is unknown."""
        known = self._known(key)
        code = (lambda: known) if known is not None else self._started(key, _text(ir), passes)
        if self.collected is not None:
            self.collected[key] = code
        return code

    def _known(self, key: str) -> bytes | None:
        """Return the entry ``key`` of the cache, else that of ``trusted_code``; None if neither has it."""
        known = None if self.cache is None else self.cache.get(key)
        return known or self.trusted_code.get(key)

    def _deferred_key(self, ir: DeferredIr, passes: Passes) -> str:
        """Return the key of the machine code of ``ir``, if possible without writing the IR.

        That key is stored as an entry of its own, under a key of all inputs of the IR.
        """
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
        """Return a digest of all inputs of the machine code of ``ir``."""
        return key_of((*self.made_by, passes.value, ir))

    @cached_property
    def compiler(self) -> IrCompiler:
        """Return the compiler for code that is in no cache."""
        # The import is deferred because code from the cache needs neither llvmlite nor threads.
        from runtime.codegen.llvm.ir_compiler import IrCompiler

        return IrCompiler(self._processor)


def _text(ir: str | DeferredIr) -> str:
    return ir if isinstance(ir, str) else ir.text


@cache
def _code_of_compiler() -> str:
    """Return a digest of the Python sources that compile IR: if they change, the same IR may give other code."""
    folder = Path(__file__).parent
    files = [*folder.glob("*.py"), *(folder.parent / "vectorizer").glob("*.py")]
    return key_of(file.read_text("utf-8") for file in sorted(files))


def _features() -> str:
    """Return the host's features as LLVM's feature string.

    On processors that reduce their clock rate for vectors of 512 bits, LLVM prefers 256 bits. Processors with AVX-512
    FP16 (Sapphire Rapids and later) do not reduce it, so the string disables this preference if the host has FP16.
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
    """Return whether the host has a fused multiply-add instruction. Without one, LLVM calls C's ``fma``, a slow one."""
    if os.uname().machine == "x86_64":
        return host_has("fma")
    return os.uname().machine in ("aarch64", "arm64")


@cache
def host_scales() -> bool:
    """Return whether the host has an instruction that scales by powers of two, and LLVM uses it for ``llvm.ldexp``."""
    return (
        os.uname().machine == "x86_64" and host_has("avx512f", "avx512vl") and llvm_version() >= 22
    )


@cache
def host_permutes() -> bool:
    """Return whether one instruction of the host selects any 16 of the 32 numbers in two vector registers."""
    return os.uname().machine == "x86_64" and host_has("avx512f", "avx512vl")


@cache
def host_adds_pairs() -> bool:
    """Return whether one instruction of the host multiplies pairs of 16-bit integers and adds both products."""
    return os.uname().machine == "x86_64" and host_has("avx512vnni", "avx512vl")
