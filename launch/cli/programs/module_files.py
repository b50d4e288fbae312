"""Files of modules: the one that MODULE names, and those that commands write."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launch.callbacks import leave_out_callbacks
from launch.ranks.messages import report_note
from launch.source import ModuleSource, load_module, source_of
from spmd.hlo import HloModule
from spmd.output_file import write_file
from spmd.proto.writer import serialize, serialize_hlo_proto, serialize_with_config
from spmd.verifier.verifier import verify


def read_module(options: argparse.Namespace) -> HloModule:
    """Return the module that MODULE names, verified. Raises SpmdError if it cannot be read."""
    module = load_module(options.module)
    return _without_callbacks(module) if options.without_callbacks else module


def source_named(options: argparse.Namespace) -> ModuleSource:
    """Return what MODULE names, to be read when it is needed. Raises SpmdError if there is no such file."""
    source = source_of(options.module)
    if not options.without_callbacks:
        return source
    return ModuleSource(lambda: _without_callbacks(source.read()))


def _without_callbacks(module: HloModule) -> HloModule:
    count = leave_out_callbacks(module)
    verify(module)
    report_note(
        f"{count} call{'' if count == 1 else 's'} of Python functions removed (--without-callbacks)"
    )
    return module


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
    """Write to the file, or to standard output if ``output`` is None, with exactly one newline at the end."""
    text = text.rstrip("\n") + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text)
