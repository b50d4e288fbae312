"""The MODULE argument that most subcommands share, and what it is read into."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launch.callbacks import leave_out_callbacks
from launch.cli.argument_types import positive
from launch.options import CompileOptions
from launch.ranks.messages import report_note
from launch.source import ModuleSource, load_module, source_of
from launch.stages.collective_groups import COLLECTIVE_GROUPS
from launch.target.machine_option import machine_for
from launch.target.measured_durations import measured_durations
from spmd.hlo import HloModule
from spmd.output_file import write_file
from spmd.proto import serialize, serialize_hlo_proto, serialize_with_config
from spmd.verifier.verifier import verify

STAGES = ("logical", "partitioned")


def add_module_arguments(
    parser: argparse.ArgumentParser, *, required: bool = True, executable: bool = False
) -> None:
    """MODULE, --devices and --stage; MODULE defaults to standard input where it is not ``required``.

    ``executable``: it may also be an executable that was saved.
    """
    parser.add_argument(
        "module",
        nargs=None if required else "?",
        default="-",
        metavar="MODULE",
        help="HLO text, a serialized HloModuleProto or HloProto, StableHLO text (with the jax extra), or a directory "
        "that --xla_dump_to wrote (DIR:NAME where it holds several modules)"
        + ("; or an executable that `spmd compile` wrote" if executable else "")
        + "; `-` reads standard input",
    )
    parser.add_argument(
        "--devices",
        type=positive,
        metavar="N",
        help="number of devices (default: what the module's header, shardings or groups name)",
    )
    parser.add_argument(
        "--stage",
        choices=STAGES,
        help="what the module is: to be partitioned, or one device's program (default: by what it holds)",
    )
    parser.add_argument(
        "--fusion",
        action=argparse.BooleanOptionalAction,
        default=CompileOptions().fusion,
        help="make kernels of several instructions where that saves time on this machine",
    )
    parser.add_argument(
        "--without",
        action="append",
        choices=COLLECTIVE_GROUPS,
        default=[],
        help="leave out a group of passes on collectives; may be repeated",
    )
    parser.add_argument(
        "--without-callbacks",
        action="store_true",
        help="leave out calls of Python functions that return nothing, as those of jax.debug.print: no file holds them",
    )


def read_module(options: argparse.Namespace) -> HloModule:
    """Return the module that MODULE names, verified; SpmdError where it cannot be read."""
    module = load_module(options.module)
    return _without_callbacks(module) if options.without_callbacks else module


def source_named(options: argparse.Namespace) -> ModuleSource:
    """Return what MODULE names, to be read where it is needed; SpmdError where there is no such file."""
    source = source_of(options.module)
    if not options.without_callbacks:
        return source
    return ModuleSource(lambda: _without_callbacks(source.read()))


def _without_callbacks(module: HloModule) -> HloModule:
    count = leave_out_callbacks(module)
    verify(module)
    report_note(f"{count} call{'' if count == 1 else 's'} of functions that no file holds left out")
    return module


def compile_options(options: argparse.Namespace) -> CompileOptions:
    """From what the command's parser has found; ``options.node``: devices of each node of a job that has several."""
    partitioned = None if options.stage is None else options.stage == "partitioned"
    limit = getattr(options, "memory_limit", None)
    machine = machine_for(
        getattr(options, "machine", None),
        getattr(options, "node", None),
        getattr(options, "backend", "cpu"),
    )
    measured = getattr(options, "durations", None)
    return CompileOptions(
        partitioned=partitioned,
        memory_limit=limit,
        fusion=options.fusion,
        machine=machine,
        durations=() if measured is None else measured_durations(measured),
        without=tuple(options.without),
    )


def write_module(module: HloModule, output: Path | None) -> None:
    """Write the module as a proto if the file's name ends in .pb, else as text.

    X.hlo.pb is an HloProto, as XLA names its dumps; X.hlo_with_config.pb an HloModuleProtoWithConfig, as PJRT names the
    format; any other an HloModuleProto.
    """
    if output is None or output.suffix != ".pb":
        write_text(str(module), output)
        return
    kind = next((kind for kind in _PROTOS if output.name.endswith(kind)), "")
    write_file(output, _PROTOS.get(kind, serialize)(module))


_PROTOS = {".hlo.pb": serialize_hlo_proto, ".hlo_with_config.pb": serialize_with_config}


def write_text(text: str, output: Path | None) -> None:
    """To the file, or to standard output where none is given; exactly one newline at the end."""
    text = text.rstrip("\n") + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text)
