"""Compilation of a MODULE argument that names a module."""

from __future__ import annotations

import argparse
import sys

from launch.cache.compile_cached import compile_source
from launch.cli.programs.compile_options import compile_options
from launch.cli.programs.module_files import source_named
from launch.entry import Compiled
from launch.job import require_world
from launch.source import ModuleSource
from spmd.hlo import HloModule
from spmd.text.stage import device_count


def compiled_module(
    options: argparse.Namespace, ranks: int | None
) -> tuple[Compiled, ModuleSource]:
    """Compile the module. Raises WorldSizeError if it is not for ``ranks`` devices, unless that is None."""

    def devices_for(module: HloModule) -> int | None:
        if ranks is None or options.devices is not None:
            return wanted_devices
        count = device_count(module)
        require_world(count, ranks, "--devices " if count == 1 else "")
        return count

    wanted_devices: int | None = options.devices
    if ranks is not None and wanted_devices is not None:
        require_world(wanted_devices, ranks)
    source = source_named(options)
    here = ranks is None
    compiled = compile_source(
        source, wanted_devices, compile_options(options), devices_for, stored_later=here
    )
    if ranks is not None:
        require_world(compiled.executable.num_devices, ranks)
    sys.stderr.write(compiled.warning)
    return compiled, source
