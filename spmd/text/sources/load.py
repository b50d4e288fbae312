"""Load a module from a path: HLO text, a serialized proto, or a directory that ``--xla_dump_to`` wrote."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from pathlib import Path

from spmd.errors import HloParseError
from spmd.hlo.clone import copy_configuration
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.limits import MAX_INFLATED
from spmd.ops.attrs import ConstantAttrs
from spmd.proto.reader import parse_proto
from spmd.text.parser import parse_module
from spmd.text.sources.dump_directory import DumpedModule, dumped_module, split_choice
from spmd.text.sources.stablehlo import parse_stablehlo, stablehlo_of

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_MLIR = re.compile(r"\s*(?:(?:#|//)[^\n]*\n\s*)*module\b[^\n]*\{\s*\n")
#: The first field of HloModuleProto, HloProto and HloModuleProtoWithConfig, and its length.
_PROTO = b"\x0a"
_GZIP = b"\x1f\x8b"


def load(path: str | Path) -> HloModule:
    """Return the module in the file ``path``, or in the dump directory ``path`` (``DIR:NAME`` if it has several).

    The content decides between text, HloModuleProto and HloProto, compressed by gzip or not. StableHLO text or
    bytecode, and the output of ``jax.export``, is converted if the jax extra is installed (else UnsupportedError).
    Raises HloParseError for anything else.
    """
    path, choice = split_choice(Path(path))
    try:
        if path.is_dir():
            return _load_dumped(dumped_module(path, choice))
        data = path.read_bytes()
    except OSError as error:
        raise HloParseError(f"{path}: {error.strerror or error}") from error
    return parse_bytes(data, str(path))


def parse_bytes(data: bytes, file: str = "<bytes>") -> HloModule:
    """Return the module in ``data``, whose format is recognized by its content."""
    if data.startswith(_GZIP):
        data = _inflated(data, file)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text or _CONTROL.search(text):
        if not data.strip():
            raise HloParseError(f"{file}: the file is empty")
        return _parse_binary(data, file)
    if _MLIR.match(text) and "func.func" in text:
        return parse_stablehlo(text, file)
    return parse_module(text, file)


def _parse_binary(data: bytes, file: str) -> HloModule:
    """Return the module in a proto, in StableHLO bytecode, or in what ``jax.export`` serializes."""
    found = stablehlo_of(data)
    if found is not None:
        return parse_stablehlo(found[0], file, found[1])
    try:
        return parse_proto(data, file)
    except HloParseError as error:
        if data.startswith(_PROTO):
            raise
        why = str(error).removeprefix(f"{file}: ")
        raise HloParseError(
            f"{file}: not an HLO module: neither text, HloProto nor StableHLO ({why})"
        ) from error


def _load_dumped(dumped: DumpedModule) -> HloModule:
    """Load the text, which states the configuration. If it elides constants, load the proto, which has them."""
    module = parse_bytes(dumped.file.read_bytes(), str(dumped.file))
    if dumped.text is None or dumped.proto is None or not _elides(module):
        return module
    complete = parse_bytes(dumped.proto.read_bytes(), str(dumped.proto))
    copy_configuration(module, complete)
    return complete


def _elides(module: HloModule) -> bool:
    return any(
        constant.attrs_as(ConstantAttrs).literal is None
        for computation in module.computations
        for constant in computation.with_opcode(Opcode.CONSTANT)
    )


def _inflated(data: bytes, file: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            inflated = stream.read(MAX_INFLATED + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise HloParseError(f"{file}: the compressed data is damaged: {error}") from error
    if len(inflated) > MAX_INFLATED:
        raise HloParseError(f"{file}: more than {MAX_INFLATED} bytes; unpack the file with gzip -d")
    return inflated
