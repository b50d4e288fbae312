"""Options of a compilation from those of a command."""

from __future__ import annotations

import argparse

from launch.options import CompileOptions
from launch.target.backends import fuses_attention
from launch.target.machine_option import machine_for


def compile_options(options: argparse.Namespace) -> CompileOptions:
    """Return the compilation's options from those of a command. ``options.node``: devices of each node of a job on
    several nodes.
    """
    partitioned = None if options.stage is None else options.stage == "partitioned"
    limit = getattr(options, "memory_limit", None)
    backend = getattr(options, "backend", "cpu")
    machine = machine_for(
        getattr(options, "machine", None), getattr(options, "node", None), backend
    )
    measured = getattr(options, "durations", None)
    durations: tuple[tuple[str, float], ...] = ()
    if measured is not None:
        from launch.target.measured_durations import measured_durations  # imports profiles

        durations = measured_durations(measured)
    return CompileOptions(
        partitioned=partitioned,
        memory_limit=limit,
        fusion=options.fusion,
        machine=machine,
        durations=durations,
        attention_fusion=fuses_attention(backend),
        without=tuple(options.without),
        check=getattr(options, "check", False),
    )
