"""Compile LLVM IR in this process: text in, function addresses out.

With ``parallel_compile.py`` and ``pass_pipelines.py`` the only file that knows llvmlite. IR is written for opaque
pointers and no target: the module gets the host's triple and data layout, runs through passes for the host's CPU, and
is linked by ORC.
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
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from runtime.codegen.elements.variants import VARIANTS
from runtime.codegen.llvm.object_cache import ObjectCache, key_of
from runtime.codegen.llvm.parallel_compile import emit_object
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.codegen.vectorizer.loops import vectorized
from spmd.errors import SpmdError


class CodegenError(SpmdError):
    """LLVM does not accept IR that this project wrote: a defect, never bad input."""

    exit_code = 3


class NativeLibrary:
    """Machine code, compiled on a thread of its own and linked when it is first wanted.

    Addresses are valid as long as this object lives.
    """

    def __init__(
        self, code: Future[bytes], link: Callable[[bytes], Any], keep: Sequence[object]
    ) -> None:
        self._object = code
        self._link = link
        self._keep = keep
        self._once = threading.Lock()
        self._code: Any = None

    def address(self, name: str) -> int:
        """Where the exported function ``name`` begins."""
        with self._once:
            if self._code is None:
                self._code = self._link(self._object.result())
        return int(self._code[name])

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """The exported function as a ctypes callable, which releases the GIL while it runs.

        The callable does not keep the library alive.
        """
        return ctypes.CFUNCTYPE(result, *arguments)(self.address(name))


class Jit:
    """The host's compiler, on as many threads as this process has cores. One thread at a time may ask it.

    processor: LLVM's name of one whose instructions the host has, and features; by default the host itself.
    ``cache``: where to look for machine code first, and to keep what was compiled; None for nowhere. ``made_by``: all
    but the IR that decides on machine code.
    """

    def __init__(self, processor: tuple[str, str] | None = None) -> None:
        self.cache: ObjectCache | None = None
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._processor = processor or (llvm.get_host_cpu_name(), _features())
        self.made_by = (llvmlite.__version__, str(llvm.llvm_version_info), *self._processor)
        self._has_masks = _has_masks(self._processor[1])
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
        """Optimize and link ``ir``. Who asks for an address gets a CodegenError where it is not valid IR.

        Code that does not link is emitted again, once: it may have come from the cache.

        exports: functions whose addresses are wanted; all others should be ``internal``.
        symbols: addresses of what ``ir`` declares and does not define, or who exports it; C's memcpy and memset are
        known.
        keep: what must live as long as the code, such as the data behind ``symbols``.
        """

        def linked(code: bytes) -> Any:
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name, found in (symbols or {}).items():
                address = found if isinstance(found, int) else found.address(name)
                builder.import_symbol(name, address)
            for name in exports:
                builder.export_symbol(name)
            return builder.link(self._linker, f"spmd{next(self._numbers)}")

        def link(code: bytes) -> Any:
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

        return NativeLibrary(self._object(ir, passes), link, (self, symbols, *keep))

    def _object(self, ir: str, passes: Passes) -> Future[bytes]:
        """Machine code, from the cache where it was compiled before by this LLVM for this processor."""
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
        """Return a name for all that decides on machine code."""
        return key_of((*self.made_by, passes.value, ir))

    def _share(
        self, code: Future[bytes], cache: ObjectCache, key: str, make: Callable[[], bytes]
    ) -> None:
        """``code`` is what ``make`` gives, or another process that makes the same: asked when all else is done here.

        Ranks of a node compile the same kernels at the same time, so each makes some of them.
        """
        if cache.claim(key):
            _settle(code, partial(_kept, cache, key, make))
        else:
            others = partial(cache.awaited, key)
            self._threads.submit(_settle, code, lambda: others() or _kept(cache, key, make))

    def _parsed(self, ir: str) -> Any:
        """In a context of its own, so that modules can be worked on at the same time."""
        try:
            module = llvm.parse_assembly(ir, llvm.create_context())
            module.triple = self._machine.triple
            module.data_layout = self._layout
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"LLVM refuses generated code: {error}") from error
        return module

    def _emitted(self, ir: str, passes: Passes) -> bytes:
        """Optimized machine code; on any thread."""
        if passes is Passes.VECTORIZE and self._has_masks and (written := vectorized(ir)):
            ir, passes = written, Passes.TIDY
        module = self._parsed(ir)
        machine = self._machine_of_thread(passes.codegen_level)
        passes.run(machine, module, variants=VARIANTS in ir)
        return emit_object(machine, module)

    def _machine_of_thread(self, level: int) -> Any:
        machines = self._of_thread.__dict__.setdefault("machines", {})
        if level not in machines:
            machines[level] = self._target_machine(level)
        return machines[level]

    def _target_machine(self, level: int = 3) -> Any:
        cpu, features = self._processor
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(cpu=cpu, features=features, opt=level, jit=True)


def _kept(cache: ObjectCache, key: str, make: Callable[[], bytes]) -> bytes:
    """What ``make`` gives, for later processes, too; or who had claimed it before."""
    try:
        code = cache.get(key)
        if code is None:
            code = make()
            cache.put(key, code)
    finally:
        cache.release(key)
    return code


def _settle(code: Future[bytes], find: Callable[[], bytes]) -> None:
    """``code`` becomes what ``find`` gives or raises."""
    try:
        code.set_result(find())
    except BaseException as error:  # noqa: BLE001 - raised where the code is asked for
        code.set_exception(error)


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _features() -> str:
    """Of the host, and vectors as wide as it has them where that costs no clock rate.

    LLVM keeps to 256 bits on processors that slow down for wider ones; those with AVX-512 FP16 (Sapphire Rapids on)
    do not.
    """
    features = llvm.get_host_cpu_features()
    wide = ",-prefer-256-bit" if features.get("avx512fp16", False) else ""
    return str(features.flatten()) + wide


def _has_masks(features: str) -> bool:
    """Return whether the processor masks vectors of all types (AVX-512) and LLVM parses what ``vectorized`` writes."""
    given = set(features.split(","))
    return given >= {"+avx512bw", "+avx512dq", "+avx512vl"} and llvm.llvm_version_info >= (20,)


@cache
def host_jit() -> Jit:
    """One compiler for the process, made at first use."""
    return Jit()


@cache
def host_has(*features: str) -> bool:
    """Whether the processor has them and the system lets them be used, by LLVM's names."""
    found = llvm.get_host_cpu_features()
    return all(found.get(feature, False) for feature in features)


@cache
def host_fuses() -> bool:
    """Whether the host has a fused multiply-add. LLVM calls the C library's, which is slow, where it has none."""
    if platform.machine() == "x86_64":
        return bool(llvm.get_host_cpu_features().get("fma", False))
    return platform.machine() in ("aarch64", "arm64")


@cache
def host_scales() -> bool:
    """Whether the host multiplies by powers of two by one instruction, which this LLVM makes of ``llvm.ldexp``."""
    return (
        platform.machine() == "x86_64"
        and host_has("avx512f", "avx512vl")
        and llvm.llvm_version_info >= (22,)
    )


@cache
def host_permutes() -> bool:
    """Whether the host takes 16 numbers out of 32 in two registers by one instruction."""
    return platform.machine() == "x86_64" and host_has("avx512f", "avx512vl")


@cache
def host_adds_pairs() -> bool:
    """Whether the host multiplies pairs of 16-bit integers and adds both products to a third by one instruction."""
    return platform.machine() == "x86_64" and host_has("avx512vnni", "avx512vl")
