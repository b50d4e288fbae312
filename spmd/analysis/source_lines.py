"""Source lines of instructions in the traced program: metadata, or XLA's stack frame tables."""

from __future__ import annotations

import re

from spmd.hlo import HloInstruction, HloModule

_FIELD = re.compile(r"(\w+)=(\d+)")


class SourceLines:
    """Source locations of one module's instructions: ``file:line``, or the op_name if an instruction states no file."""

    def __init__(self, module: HloModule) -> None:
        tables = dict(module.file_tables)
        self._files = dict(_numbered(line) for line in tables.get("FileNames", ()))
        self._locations = _fields(tables.get("FileLocations", ()))
        self._frames = _fields(tables.get("StackFrames", ()))

    def of(self, instruction: HloInstruction) -> str:
        metadata = instruction.annotations.metadata
        if metadata.source_file:
            return f"{metadata.source_file}:{metadata.source_line}"
        frame = dict(metadata.extra).get("stack_frame_id", "")
        return self._of_frame(frame) or metadata.op_name

    def _of_frame(self, frame: str) -> str:
        """Return the location of the innermost call."""
        location = self._locations.get(self._frames.get(frame, {}).get("file_location_id", ""), {})
        file = self._files.get(location.get("file_name_id", ""), "")
        return f"{file}:{location.get('line', '0')}" if file else ""


def _numbered(line: str) -> tuple[str, str]:
    number, _, text = line.strip().partition(" ")
    return number, text.strip().strip('"')


def _fields(lines: tuple[str, ...]) -> dict[str, dict[str, str]]:
    return {number: dict(_FIELD.findall(text)) for number, text in map(_numbered, lines)}
