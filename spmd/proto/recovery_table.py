"""OriginalValueRecoveryTableProto: how arrays of the original program that a pass removed come from others.

A text has it as ``origin_recovery_table={ {"old"} : {"new"}, "HloModule .." {"a" {0}} : {"b"} }``, as written: an
old array, a new one, and often a module in quotes that computes the old one from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from spmd.errors import HloParseError
from spmd.hlo.module import HloModule
from spmd.proto.original_value import original_array_text, read_original_array
from spmd.proto.schema.hlo import HloModuleProto, RecoveryEntryProto, RecoveryTableProto
from spmd.text.lexer import Scanner, quote, unescape
from spmd.text.parser import parse_module
from spmd.text.printer import print_module

#: Names of the table in texts: the current and the former one.
RECOVERY_TABLES = ("origin_recovery_table", "original_value_recovery_table")
#: Unlike other strings, XLA writes this one on several lines.
_MODULE = re.compile(r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"', re.DOTALL)


def recovery_table_text(
    proto: RecoveryTableProto, read_module: Callable[[HloModuleProto], HloModule]
) -> str:
    entries = (_entry_text(entry, read_module) for entry in proto.entries)
    return "{" + "".join(f"\n  {entry}" for entry in entries) + "\n}"


def _entry_text(
    proto: RecoveryEntryProto, read_module: Callable[[HloModuleProto], HloModule]
) -> str:
    pair = f"{original_array_text(proto.old_array)} : {original_array_text(proto.new_array)}"
    if proto.recovery_module is None:
        return pair
    return f"{pair}, {quote(print_module(read_module(proto.recovery_module)))}"


def write_recovery_table(
    text: str, write_module: Callable[[HloModule], HloModuleProto]
) -> RecoveryTableProto:
    entries: list[RecoveryEntryProto] = []
    scanner = Scanner.of(text)
    scanner.expect("{")
    while not scanner.consume_if("}"):
        entry = RecoveryEntryProto()
        entry.old_array = read_original_array(scanner)
        scanner.expect(":")
        entry.new_array = read_original_array(scanner)
        if scanner.consume_if(","):
            module = unescape(scanner.need(_MODULE, "a module in quotes").group()[1:-1])
            try:
                entry.recovery_module = write_module(parse_module(module))
            except HloParseError as error:
                raise HloParseError(f"in the table of recovered values: {error}") from error
        entries.append(entry)
    scanner.finish()
    proto = RecoveryTableProto()
    proto.entries = entries
    return proto
