"""A module's program: compiled, or taken from the cache of those that were compiled before (program_cache.py)."""

from __future__ import annotations

from collections.abc import Callable

from launch.cache.program_cache import Entry, program_cache, program_key
from launch.entry import Compiled
from launch.options import CompileOptions
from launch.source import ModuleSource
from runtime.cpu.precompile import begin_fixed_code
from runtime.interpreter import settings_for_compiling
from runtime.saved import save_bytes
from runtime.saved_archive import SavedExecutableError
from spmd.hlo import HloModule
from spmd.hlo.host_functions import NO_FUNCTIONS, HostFunctions


@settings_for_compiling()
def compile_source(
    source: ModuleSource,
    devices: int | None,
    options: CompileOptions,
    devices_for: Callable[[HloModule], int | None] | None = None,
    functions: HostFunctions = NO_FUNCTIONS,
    *,
    stored_later: bool = False,
) -> Compiled:
    """Compile the source's module, or load its program from the cache. ``devices_for``: returns the number of devices
    for a module if ``devices`` is None; it may raise an error.

    ``functions``: those of the source's module. A program to be checked is compiled without the cache.

    stored_later: the program is stored when this process loads it, while other threads make its machine code.
    """
    # The module's text does not distinguish two partition functions.
    cache = None if options.check or functions.partitioners else program_cache()
    # Compute the key first: its many short system calls would each wait for the compiling threads.
    key = "" if cache is None else program_key(source.digest, devices, options)
    begin_fixed_code(devices)
    if cache is not None and (found := cache.load(key)) is not None:
        executable, entry = found
        executable.program.host.callbacks = functions.callbacks
        return Compiled(executable, entry.warning, entry.data, cached=True)
    count = devices if devices_for is None else devices_for(source.module)
    # A program from the cache needs no compiler.
    from launch.cache.compile_afresh import compile_warning

    executable, warning = compile_warning(source.module, count, options)
    if cache is None:
        return Compiled(executable, warning)

    def store() -> bytes | None:
        try:
            saved = save_bytes(executable)
        except SavedExecutableError:  # the program can still run
            return None
        cache.put(key, Entry(saved, warning))
        return saved

    if not stored_later:
        return Compiled(executable, warning, store())
    executable.while_loading = store
    return Compiled(executable, warning)
