"""StackFrameIndexProto: the tables behind metadata's ``stack_frame_id``, which HloModule keeps as text lines."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.errors import HloParseError
from spmd.proto.schema.hlo import FileLocationProto, StackFrameIndexProto, StackFrameProto
from spmd.text.lexer import Scanner, quote

Tables = tuple[tuple[str, tuple[str, ...]], ...]


# ---- reading
def read_stack_frames(proto: StackFrameIndexProto) -> Tables:
    """Return the lines of every table, numbered from one, as XLA prints them."""
    return (
        ("FileNames", _numbered(quote(name) for name in proto.file_names)),
        ("FunctionNames", _numbered(quote(name) for name in proto.function_names)),
        ("FileLocations", _numbered(map(_location_text, proto.file_locations))),
        ("StackFrames", _numbered(map(_frame_text, proto.stack_frames))),
    )


def _numbered(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{i} {text}" for i, text in enumerate(texts, 1))


def _location_text(proto: FileLocationProto) -> str:
    return (
        f"{{file_name_id={proto.file_name_id} function_name_id={proto.function_name_id} "
        f"line={proto.line} end_line={proto.end_line} "
        f"column={proto.column} end_column={proto.end_column}}}"
    )


def _frame_text(proto: StackFrameProto) -> str:
    """Return the text of a frame. Its parent is one more than the proto's, in which 0 means none."""
    parent = proto.parent_frame_id + 1
    return f"{{file_location_id={proto.file_location_id} parent_frame_id={parent}}}"


# ---- writing
def write_stack_frames(tables: Tables) -> StackFrameIndexProto:
    proto = StackFrameIndexProto()
    lines = dict(tables)
    proto.file_names = _strings(lines.get("FileNames", ()))
    proto.function_names = _strings(lines.get("FunctionNames", ()))
    proto.file_locations = [_location(line) for line in lines.get("FileLocations", ())]
    proto.stack_frames = [_frame(line) for line in lines.get("StackFrames", ())]
    return proto


def _strings(lines: tuple[str, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for line in lines:
        scanner = Scanner.of(line)
        scanner.integer()
        names.append(scanner.string())
    return tuple(names)


def _location(line: str) -> FileLocationProto:
    numbers = _numbers(line)
    proto = FileLocationProto()
    proto.file_name_id = numbers.get("file_name_id", 0)
    proto.function_name_id = numbers.get("function_name_id", 0)
    proto.line = numbers.get("line", 0)
    proto.end_line = numbers.get("end_line", 0)
    proto.column = numbers.get("column", 0)
    proto.end_column = numbers.get("end_column", 0)
    return proto


def _frame(line: str) -> StackFrameProto:
    numbers = _numbers(line)
    proto = StackFrameProto()
    proto.file_location_id = numbers.get("file_location_id", 0)
    proto.parent_frame_id = max(numbers.get("parent_frame_id", 1) - 1, 0)
    return proto


def _numbers(line: str) -> dict[str, int]:
    """Read ``1 {line=3 column=1}``."""
    scanner = Scanner.of(line)
    scanner.integer()
    numbers: dict[str, int] = {}
    for _ in scanner.items(needs_commas=False):
        name = scanner.name("a field")
        scanner.expect("=")
        if name in numbers:
            raise HloParseError(f"{name} is given twice: {line}")
        numbers[name] = scanner.integer()
    return numbers
