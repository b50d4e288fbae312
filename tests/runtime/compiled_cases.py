"""The copied corpus cases, compiled once for all tests that run them: on the processor, and on doubles of GPUs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launch.entry import Entry
from launch.pipeline import compile_module
from runtime.executable import Executable
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd.text.parser import parse_module


@dataclass(frozen=True)
class CompiledCase:
    """A case's program for as many devices as the case names.

    Attributes:
        compiled: For all tests, on the processor: none may change it.
        saved: The same as it is saved, made before threads ask for it.
    """

    compiled: Executable
    saved: bytes
    devices: int
    entry: Entry

    def executable(self) -> Executable:
        """Return one of the caller's own, as it is saved and loaded again."""
        return load_bytes(self.saved, "the case")


@cache
def compiled_case(folder: Path) -> CompiledCase:
    devices = json.loads((folder / "case.json").read_text())["num_partitions"]
    module = parse_module((folder / "module.hlo").read_text())
    compiled = compile_module(module, devices)
    return CompiledCase(compiled, save_bytes(compiled), devices, Entry.of_module(module))
