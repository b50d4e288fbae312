"""What stands on any instruction: metadata, frontend attributes, backend config, and text nobody reads."""

from __future__ import annotations

import re

from spmd.errors import HloParseError
from spmd.hlo.instruction import OpMetadata
from spmd.text.lexer import INTEGER, STRING, Scanner, quote, unescape

_KEY = re.compile(r"[\w.\-/]++")
_METADATA_VALUE = re.compile(r"-?\d++|true|false")
#: Fields that have a place of their own in OpMetadata.
_TEXT_FIELDS = {"op_type", "op_name", "source_file"}


def read_metadata(scanner: Scanner) -> OpMetadata:
    """``{op_type="a" op_name="b" source_file="c" source_line=1 ...}``, commas optional."""
    scanner.expect("{")
    texts: dict[str, str] = {}
    source_line = 0
    extra: list[tuple[str, str]] = []
    while not scanner.take("}"):
        scanner.take(",")
        key = scanner.need(_KEY, "a metadata field").group()
        scanner.expect("=")
        if key in _TEXT_FIELDS:
            texts[key] = scanner.string()
        elif key == "source_line":
            source_line = scanner.integer()
        else:
            extra.append((key, _read_verbatim(scanner)))
    return OpMetadata(
        texts.get("op_type", ""),
        texts.get("op_name", ""),
        texts.get("source_file", ""),
        source_line,
        tuple(extra),
    )


def _read_verbatim(scanner: Scanner) -> str:
    if scanner.peek("{"):
        start, end = scanner.balanced()
        return scanner.text[start:end]
    found = scanner.match(STRING) or scanner.need(_METADATA_VALUE, "a metadata value")
    return found.group()


def format_metadata(metadata: OpMetadata) -> str:
    parts: list[str] = []
    if metadata.op_type:
        parts.append(f"op_type={quote(metadata.op_type)}")
    if metadata.op_name:
        parts.append(f"op_name={quote(metadata.op_name)}")
    if metadata.source_file:
        parts.append(f"source_file={quote(metadata.source_file)}")
    if metadata.source_line:
        parts.append(f"source_line={metadata.source_line}")
    parts.extend(f"{key}={value}" for key, value in metadata.extra)
    return "{" + " ".join(parts) + "}"


def read_frontend_attributes(scanner: Scanner) -> tuple[tuple[str, str], ...]:
    """``{key="value",other={verbatim}}``: quoted values without their quotes, braced ones with their braces."""
    scanner.expect("{")
    pairs: list[tuple[str, str]] = []
    while not scanner.take("}"):
        if pairs:
            scanner.expect(",")
        key = _read_key(scanner)
        scanner.expect("=")
        pairs.append((key, read_text_or_braces(scanner)))
    return tuple(pairs)


def _read_key(scanner: Scanner) -> str:
    if (found := scanner.match(STRING)) is not None:
        return unescape(found.group()[1:-1])
    return scanner.need(_KEY, "an attribute name").group()


def read_text_or_braces(scanner: Scanner) -> str:
    """A string without its quotes, or a braced text with its braces."""
    if scanner.peek("{"):
        start, end = scanner.balanced()
        return scanner.text[start:end]
    if (found := scanner.match(STRING)) is not None:
        return unescape(found.group()[1:-1])
    return scanner.need(INTEGER, "a string or braces").group()


def format_frontend_attributes(pairs: tuple[tuple[str, str], ...]) -> str:
    return (
        "{"
        + ",".join(f"{_format_key(key)}={format_text_or_braces(value)}" for key, value in pairs)
        + "}"
    )


def _format_key(key: str) -> str:
    return key if _KEY.fullmatch(key) else quote(key)


def format_text_or_braces(value: str) -> str:
    """As XLA prints it: raw when the text lexes as a dictionary, else quoted."""
    return value if is_braced(value) else quote(value)


def is_braced(text: str) -> bool:
    """Whether the text is one balanced brace group, which the reader takes verbatim."""
    if not (text.startswith("{") and text.endswith("}")):
        return False
    scanner = Scanner.of(text)
    try:
        return scanner.balanced() == (0, len(text))
    except HloParseError:
        return False
