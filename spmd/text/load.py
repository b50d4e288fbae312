"""Load a module from a path: HLO text, a serialized proto, or a directory that ``--xla_dump_to`` wrote."""

from __future__ import annotations

import re
from pathlib import Path

from spmd.errors import HloParseError
from spmd.hlo.module import HloModule
from spmd.proto.reader import parse_proto
from spmd.text.parser import parse_module
from spmd.text.stablehlo import parse_stablehlo

#: Text first: it says what no proto does (partitions, sharding propagation).
_DUMPED = ("*.before_optimizations.txt", "*.before_optimizations.hlo.pb")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_MLIR = re.compile(r"\s*(?:(?:#|//)[^\n]*\n\s*)*module\b[^\n]*\{\s*\n")


def load(path: str | Path) -> HloModule:
    """The module in the file ``path``, or in the dump directory ``path``.

    Text, HloModuleProto and HloProto are told apart by content; StableHLO text is converted where the jax extra is
    installed (UnsupportedError where not). Raises HloParseError for what is none of them.
    """
    path = Path(path)
    try:
        if path.is_dir():
            path = _dumped_module(path)
        data = path.read_bytes()
    except OSError as error:
        raise HloParseError(f"{path}: {error.strerror or error}") from error
    return parse_bytes(data, str(path))


def parse_bytes(data: bytes, file: str = "<bytes>") -> HloModule:
    """The module in ``data``, told apart by content."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text or _CONTROL.search(text):
        if not data.strip():
            raise HloParseError(f"{file}: the file is empty")
        return parse_proto(data, file)
    if _MLIR.match(text) and "func.func" in text:
        return parse_stablehlo(text, file)
    return parse_module(text, file)


def _dumped_module(folder: Path) -> Path:
    found = next((paths for form in _DUMPED if (paths := sorted(folder.glob(form)))), [])
    if not found:
        raise HloParseError(f"{folder}: no file {' or '.join(_DUMPED)} in this directory")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise HloParseError(f"{folder}: several modules, name one of them: {names}")
    return found[0]
