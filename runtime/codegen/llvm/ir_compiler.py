"""Compiler from LLVM IR to object files. It runs the passes for the host's processor on one thread per core.

In this folder only this file and ``parallel_compile.py`` import llvmlite.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import Linkage

from runtime.codegen.elements.variants import VARIANTS
from runtime.codegen.llvm.jit import CodegenError, Passes
from runtime.codegen.llvm.object_cache import ObjectCache
from runtime.codegen.llvm.parallel_compile import emit_object, run_passes
from runtime.codegen.vectorizer.loops import vectorized
from runtime.codegen.vectorizer.target import vector_target

#: LLVM option that disables loop strength reduction. Generated loops have one index and strides; the pass replaces the
#: index by several pointers, which makes no faster code. Without the pass, compilation takes 0.94 of the processor time
#: and steps take 0.99 of the time (44 programs, EPYC of the Zen 5 generation). Disabling the scheduler after register
#: allocation as well would give 0.92, but steps of convolutions would take up to 1.07.
_LEFT_OUT = "-disable-lsr"


class IrCompiler:
    """Compiler from IR text to object files for one processor, with a pool of one thread per core.

    processor: LLVM's name of the processor, and its feature string.
    """

    def __init__(self, processor: tuple[str, str]) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _leave_out_pass()
        self._processor = processor
        self._vectors = vector_target(processor[1])
        self._machine = self._target_machine()
        self._layout = str(self._machine.target_data)
        self._of_thread = threading.local()
        self._threads = ThreadPoolExecutor(_cores(), "spmd-codegen")

    def start(self, ir: str, passes: Passes) -> Callable[[], bytes]:
        """Start compiling ``ir`` on a thread of the pool.

        Returns a function that waits for the object file and returns its bytes, or raises the error of ``emit``.
        """
        return self._threads.submit(self.emit, ir, passes).result

    def start_shared(
        self, ir: str, passes: Passes, cache: ObjectCache, key: str
    ) -> Callable[[], bytes]:
        """Start compiling ``ir``, or waiting for the process that is already compiling the entry ``key`` of ``cache``.

        Ranks of a node compile the same kernels at the same time; since they claim entries, each compiles only some of
        them. The wait for another process is queued behind the compilations that were submitted before.
        Returns a function that waits for the object file and returns its bytes, or raises the error of ``emit``.
        """
        code: Future[bytes] = Future()
        self._threads.submit(self._share, code, cache, key, partial(self.emit, ir, passes))
        return code.result

    def _share(
        self, code: Future[bytes], cache: ObjectCache, key: str, make: Callable[[], bytes]
    ) -> None:
        """Set ``code`` to the cached entry or to the result of ``make``.

        If another process has claimed ``key``, a later task of the pool waits for its entry.
        """
        if cache.claim(key):
            _settle(code, partial(_cached_or_made, cache, key, make))
        else:
            others = partial(cache.awaited, key)
            self._threads.submit(
                _settle, code, lambda: others() or _cached_or_made(cache, key, make)
            )

    def emit(self, ir: str, passes: Passes) -> bytes:
        """Return optimized machine code; may run on any thread.

        Raises CodegenError if LLVM rejects ``ir`` or cannot generate code for it.
        """
        module, machine = self._optimized(ir, passes)
        try:
            return emit_object(machine, module)
        except RuntimeError as error:
            raise CodegenError(f"LLVM makes no machine code of generated code: {error}") from error

    def listing(self, ir: str, passes: Passes) -> tuple[str, str]:
        """Return the optimized IR of ``ir``, and the assembly of its machine code. Raises CodegenError as ``emit``."""
        module, machine = self._optimized(ir, passes)
        return str(module), str(machine.emit_assembly(module))

    def _optimized(self, ir: str, passes: Passes) -> tuple[Any, Any]:
        """Return the optimized module of ``ir``, and the calling thread's target machine."""
        target = self._vectors
        if passes is Passes.VECTORIZE and target and (written := vectorized(ir, target)):
            ir, passes = written, Passes.TIDY
        module = self._parsed(ir)
        machine = self._machine_of_thread(passes.codegen_level)
        _run_pipeline(passes, machine, module, variants=VARIANTS in ir)
        return module, machine

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

    def _machine_of_thread(self, level: int) -> Any:
        machines = self._of_thread.__dict__.setdefault("machines", {})
        if level not in machines:
            machines[level] = self._target_machine(level)
        return machines[level]

    def _target_machine(self, level: int = 3) -> Any:
        cpu, features = self._processor
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(cpu=cpu, features=features, opt=level, jit=True)


def _cached_or_made(cache: ObjectCache, key: str, make: Callable[[], bytes]) -> bytes:
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
    """Call ``find``, and set its result or its exception on ``code``."""
    try:
        code.set_result(find())
    except BaseException as error:  # noqa: BLE001 - raised where the code is used
        code.set_exception(error)


@cache
def _leave_out_pass() -> None:
    """Set LLVM's option ``_LEFT_OUT``. It applies to all uses of llvmlite in this process."""
    llvm.set_option("", _LEFT_OUT)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_pipeline(passes: Passes, machine: Any, module: Any, *, variants: bool) -> None:
    """Run the pass pipeline of ``passes`` on the calling thread, which must own ``machine`` and ``module``.

    variants: whether functions of the module have vector variants (elements/variants.py). The loop vectorizer replaces
    calls of such functions by calls of their variants, so both are inlined only after it.
    """
    builder = llvm.create_pass_builder(machine, _options(passes))
    is_as_written = passes in (Passes.TIDY, Passes.CALL)
    if not is_as_written:
        run_passes(builder.getModulePassManager(), module, builder)
    if variants:
        _drop_when_inlined(module)
    if is_as_written or variants:
        run_passes(_tidying(), module, builder)


def _options(passes: Passes) -> Any:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = passes is Passes.UNROLL
    return options


def _drop_when_inlined(module: Any) -> None:
    """Mark functions that have vector variants ``alwaysinline``, and make all such functions of the module internal.

    The passes that follow then inline and remove the variants. Until now these were external, so that they remained
    until the loop vectorizer calls them, and the functions that have variants were ``weak``, which prevents inlining.
    """
    for function in module.functions:
        if function.linkage is Linkage.weak_any:
            function.add_function_attribute("alwaysinline")
        if not function.is_declaration and b"alwaysinline" in b" ".join(function.attributes):
            function.linkage = Linkage.internal


def _tidying() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    return passes
