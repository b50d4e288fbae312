"""The first line of a module and the file tables behind it."""

from __future__ import annotations

import re
from collections.abc import Callable

from spmd.hlo.module import EntryLayout, HloModule, Stage
from spmd.limits import MAX_COUNT
from spmd.text.alias_text import read_buffer_donors, read_input_output_alias
from spmd.text.annotations_text import read_frontend_attributes
from spmd.text.attr_extents import scan_attributes
from spmd.text.lexer import INTEGER, STRING, Scanner
from spmd.text.shape_text import ShapeReader

_HEADER = re.compile(r"HloModule\b")
#: Names in protos may begin differently, and are printed so.
_MODULE_NAME = re.compile(r"%?([\w.\-]++):?")
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\b")


def read_header(scanner: Scanner) -> HloModule:
    """Return a module with all that its header states; one without a name if the text has no header."""
    if scanner.match(_HEADER) is None:
        return HloModule("")
    module = HloModule(scanner.need(_MODULE_NAME, "the module's name")[1])
    extra: dict[str, str] = {}
    for name, (start, end) in scan_attributes(scanner).items():
        value = Scanner(scanner.source, start, end)
        reader = _READERS.get(name)
        if reader is not None:
            reader(module, value)
            value.finish()
        elif name in OPAQUE:
            extra[name] = scanner.text[start:end]
        else:
            scanner.fail(f"unknown header attribute {name!r}", scanner.text.rfind(name, 0, start))
    module.extra_header = tuple((name, extra[name]) for name in OPAQUE if name in extra)
    module.file_tables = _read_tables(scanner)
    return module


def _count(scanner: Scanner) -> int:
    start = scanner.pos
    count = scanner.integer("a count")
    if not 1 <= count <= MAX_COUNT:
        scanner.fail(
            f"expected a count of at least 1 and at most {MAX_COUNT}, found {count}", start
        )
    return count


def _read_scheduled(module: HloModule, scanner: Scanner) -> None:
    if scanner.boolean():
        module.stage = Stage.SCHEDULED


def _read_partitions(module: HloModule, scanner: Scanner) -> None:
    module.num_partitions = _count(scanner)
    module.states_partitions = True


def _read_replicas(module: HloModule, scanner: Scanner) -> None:
    module.replica_count = _count(scanner)


def _read_alias(module: HloModule, scanner: Scanner) -> None:
    module.input_output_alias = read_input_output_alias(scanner)


def _read_donors(module: HloModule, scanner: Scanner) -> None:
    module.buffer_donors = read_buffer_donors(scanner)


def _read_frontend(module: HloModule, scanner: Scanner) -> None:
    module.frontend_attributes = read_frontend_attributes(scanner)


def _read_layout(module: HloModule, scanner: Scanner) -> None:
    """Read ``{(f32[2]{0}, /*index=5*/s32[])->(f32[2]{0})}``."""
    shapes = ShapeReader()
    scanner.expect("{")
    parameters = tuple(shapes.read(scanner) for _ in scanner.items("(", ")"))
    scanner.expect("->")
    module.entry_layout = EntryLayout(parameters, shapes.read(scanner))
    scanner.expect("}")


_READERS: dict[str, Callable[[HloModule, Scanner], None]] = {
    "is_scheduled": _read_scheduled,
    "num_partitions": _read_partitions,
    "replica_count": _read_replicas,
    "input_output_alias": _read_alias,
    "buffer_donor": _read_donors,
    "frontend_attributes": _read_frontend,
    "entry_computation_layout": _read_layout,
}
#: Known header attributes that are only preserved, in the order in which they are printed.
OPAQUE = (
    "alias_passthrough_params",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "origin_recovery_table",
    "original_value_recovery_table",
)


def _read_tables(scanner: Scanner) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read FileNames, FunctionNames, FileLocations and StackFrames: lines of a number and a string or braces."""
    tables: list[tuple[str, tuple[str, ...]]] = []
    while (title := scanner.match(_TABLE)) is not None:
        lines: list[str] = []
        while (number := scanner.match(INTEGER)) is not None:
            if scanner.peek("{"):
                start, end = scanner.balanced()
                lines.append(f"{number.group()} {scanner.text[start:end]}")
            else:
                lines.append(f"{number.group()} {scanner.need(STRING, 'a string').group()}")
        tables.append((title.group(1), tuple(lines)))
    return tuple(tables)
