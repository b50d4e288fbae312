"""In-process compiler for LLVM IR: text in, function addresses out.

Only this file, ``parallel_compile.py`` and ``pass_pipelines.py`` use llvmlite. IR uses opaque pointers and names no
target: the module gets the host's triple and data layout, passes for the host's CPU optimize it, and ORC links it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from runtime.codegen.llvm.object_cache import ObjectCache, key_of
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.codegen.llvm.perf_map import PerfMap
from runtime.codegen.vectorizer.target import vector_target
from spmd.errors import SpmdError


class CodegenError(SpmdError):
    """LLVM rejects IR that this project wrote: a defect, never bad input."""

    exit_code = 3


class NativeLibrary:
    """Machine code, compiled on its own thread and linked at first use.

    Addresses are valid as long as this object lives.
    """

    def __init__(
        self,
        code: Future[bytes],
        link: Callable[[bytes, str], Any],
        keep: Sequence[object],
        source: tuple[str, Passes] | None = None,
    ) -> None:
        self._object = code
        #: The IR and how it is optimized, if the compiler keeps sources.
        self.source = source
        #: The first thunk that calls the code, for profilers.
        self.caller = ""
        self._link = link
        self._keep = keep
        self._once = threading.Lock()
        self._code: Any = None

    def address(self, name: str) -> int:
        """Return the address of the exported function ``name``. Raises CodegenError if compiling or linking failed."""
        with self._once:
            if self._code is None:
                self._code = self._link(self._object.result(), self.caller)
        return int(self._code[name])

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
        #: Whether libraries keep their IR, for listings of kernels.
        self.keeps_sources = False
        #: Where the addresses of functions are written for profilers; None if they are not.
        self.perf_map: PerfMap | None = None
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._processor = processor or (llvm.get_host_cpu_name(), _features())
        self.made_by = (
            llvmlite.__version__,
            str(llvm.llvm_version_info),
            *self._processor,
            _code_of_compiler(),
        )
        self._vectors = vector_target(self._processor[1], llvm.llvm_version_info[0])
        self._machine = self._target_machine()
        self._layout = str(self._machine.target_data)
        self._linker = llvm.create_lljit_compiler(self._machine)
        self._numbers = itertools.count()
        self._of_thread = threading.local()
        self._threads = ThreadPoolExecutor(_cores(), "spmd-codegen")

    def compile(
        self,
        ir: str,
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

        def linked(code: bytes) -> Any:
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name, found in (symbols or {}).items():
                address = found if isinstance(found, int) else found.address(name)
                builder.import_symbol(name, address)
            for name in exports:
                builder.export_symbol(name)
            return builder.link(self._linker, f"spmd{next(self._numbers)}")

        def link(code: bytes, caller: str) -> Any:
            library = relinked(code)
            if self.perf_map is not None:
                addresses = {name: int(library[name]) for name in exports}
                self.perf_map.add(code, addresses, caller)
            return library

        def relinked(code: bytes) -> Any:
            try:
                return linked(code)
            except RuntimeError:
                pass
            code = self._emitted(ir, passes)
            if self.cache is not None:
                self.cache.put(self._key(ir, passes), code)
            try:
                return linked(code)
            except RuntimeError as error:
                raise CodegenError(f"LLVM does not link generated code: {error}") from error

        source = (ir, passes) if self.keeps_sources else None
        return NativeLibrary(self._object(ir, passes), link, (self, symbols, *keep), source)

    def listing(self, ir: str, passes: Passes) -> tuple[str, str]:
        """Return the optimized IR of ``ir`` and the assembly that becomes its machine code."""
        module, machine = self._optimized(ir, passes)
        return str(module), str(machine.emit_assembly(module))

    def _object(self, ir: str, passes: Passes) -> Future[bytes]:
        """Return machine code, from the cache if this LLVM has compiled it for this processor before."""
        cache = self.cache
        if cache is None:
            return self._threads.submit(self._emitted, ir, passes)
        code: Future[bytes] = Future()
        key = self._key(ir, passes)
        if (known := cache.get(key)) is not None:
            code.set_result(known)
        else:
            self._threads.submit(self._share, code, cache, key, partial(self._emitted, ir, passes))
        return code

    def _key(self, ir: str, passes: Passes) -> str:
        """Return a key of all inputs of machine code."""
        return key_of((*self.made_by, passes.value, ir))

    def _share(
        self, code: Future[bytes], cache: ObjectCache, key: str, make: Callable[[], bytes]
    ) -> None:
        """Set ``code`` to the result of ``make``, or of another process that makes the same, for which it waits last.

        Ranks of a node compile the same kernels at the same time, so each makes some of them.
        """
        if cache.claim(key):
            _settle(code, partial(_cached, cache, key, make))
        else:
            others = partial(cache.awaited, key)
            self._threads.submit(_settle, code, lambda: others() or _cached(cache, key, make))

    def _parsed(self, ir: str) -> Any:
        """Parse and verify ``ir`` in its own context, so that modules can be compiled concurrently.

        Raises CodegenError if LLVM rejects it.
        """
        try:
            module = llvm.parse_assembly(ir, llvm.create_context())
            module.triple = self._machine.triple
            module.data_layout = self._layout
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"LLVM refuses generated code: {error}") from error
        return module

    def _emitted(self, ir: str, passes: Passes) -> bytes:
        """Return optimized machine code; may run on any thread."""
        # Code from the cache needs none of this.
        from runtime.codegen.llvm.parallel_compile import emit_object

        module, machine = self._optimized(ir, passes)
        return emit_object(machine, module)

    def _optimized(self, ir: str, passes: Passes) -> tuple[Any, Any]:
        """Return the optimized module of ``ir``, and the calling thread's target machine."""
        # Code from the cache needs none of these.
        from runtime.codegen.elements.variants import VARIANTS
        from runtime.codegen.vectorizer.loops import vectorized

        target = self._vectors
        if passes is Passes.VECTORIZE and target and (written := vectorized(ir, target)):
            ir, passes = written, Passes.TIDY
        module = self._parsed(ir)
        machine = self._machine_of_thread(passes.codegen_level)
        passes.run(machine, module, variants=VARIANTS in ir)
        return module, machine

    def _machine_of_thread(self, level: int) -> Any:
        machines = self._of_thread.__dict__.setdefault("machines", {})
        if level not in machines:
            machines[level] = self._target_machine(level)
        return machines[level]

    def _target_machine(self, level: int = 3) -> Any:
        cpu, features = self._processor
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(cpu=cpu, features=features, opt=level, jit=True)


@cache
def _code_of_compiler() -> str:
    """Return a digest of the modules between IR and machine code, whose changes make the same IR other code."""
    folder = Path(__file__).parent
    files = [*folder.glob("*.py"), *(folder.parent / "vectorizer").glob("*.py")]
    return key_of(file.read_text("utf-8") for file in sorted(files))


def _cached(cache: ObjectCache, key: str, make: Callable[[], bytes]) -> bytes:
    """Return the cached entry, or make it and store it in the cache. Releases the claim."""
    try:
        code = cache.get(key)
        if code is None:
            code = make()
            cache.put(key, code)
    finally:
        cache.release(key)
    return code


def _settle(code: Future[bytes], find: Callable[[], bytes]) -> None:
    """Set ``code`` to what ``find`` returns or raises."""
    try:
        code.set_result(find())
    except BaseException as error:  # noqa: BLE001 - raised where the code is used
        code.set_exception(error)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _features() -> str:
    """Return the host's features, with its widest vectors if these do not reduce the clock rate.

    LLVM uses 256 bits on processors that slow down for wider vectors; those with AVX-512 FP16 (from Sapphire Rapids on)
    do not.
    """
    features = llvm.get_host_cpu_features()
    wide = ",-prefer-256-bit" if features.get("avx512fp16", False) else ""
    return str(features.flatten()) + wide


@cache
def host_jit() -> Jit:
    """Return the process's compiler, created at first use."""
    return Jit()


@cache
def host_has(*features: str) -> bool:
    """Return whether the processor has the features and the system enables them, by LLVM's names."""
    found = llvm.get_host_cpu_features()
    return all(found.get(feature, False) for feature in features)


@cache
def host_fuses() -> bool:
    """Return whether the host has a fused multiply-add. Without one, LLVM calls the C library's, which is slow."""
    if platform.machine() == "x86_64":
        return bool(llvm.get_host_cpu_features().get("fma", False))
    return platform.machine() in ("aarch64", "arm64")


@cache
def host_scales() -> bool:
    """Return whether the host scales by powers of two in one instruction, which this LLVM emits for ``llvm.ldexp``."""
    return (
        platform.machine() == "x86_64"
        and host_has("avx512f", "avx512vl")
        and llvm.llvm_version_info >= (22,)
    )


@cache
def host_permutes() -> bool:
    """Return whether the host selects 16 numbers out of 32 in two registers in one instruction."""
    return platform.machine() == "x86_64" and host_has("avx512f", "avx512vl")


@cache
def host_adds_pairs() -> bool:
    """Return whether the host multiplies pairs of 16-bit integers and adds both products in one instruction."""
    return platform.machine() == "x86_64" and host_has("avx512vnni", "avx512vl")
