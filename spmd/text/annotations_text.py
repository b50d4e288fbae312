"""Attributes of any instruction: metadata, frontend attributes, backend config, and text that nothing reads."""

from __future__ import annotations

import re

from spmd.errors import HloParseError
from spmd.hlo.instruction import OpMetadata
from spmd.text.lexer import INTEGER, STRING, Scanner, quote, unescape

_KEY = re.compile(r"[\w.\-/]++")
#: Fields that OpMetadata has, too.
_TEXT_FIELDS = {"op_type", "op_name", "source_file"}
_VERBATIM_FIELDS = {
    "source_end_line": INTEGER,
    "source_column": INTEGER,
    "source_end_column": INTEGER,
    "stack_frame_id": INTEGER,
    "profile_type": re.compile(r"\{\s*+(?:[0-3]\s*+(?>(?:,\s*+[0-3]\s*+)*))?\}"),
    "deduplicated_name": STRING,
    "scheduling_name": STRING,
    "metadata_payload": STRING,
}
_EXPECTED = {INTEGER: "an integer", STRING: "a string"}


def read_metadata(scanner: Scanner) -> OpMetadata:
    """Read ``{op_type="a" op_name="b" source_file="c" source_line=1 ...}``; commas are optional."""
    texts: dict[str, str] = {}
    source_line = 0
    extra: list[tuple[str, str]] = []
    seen: set[str] = set()
    for _ in scanner.items(needs_commas=False):
        found = scanner.need(_KEY, "a metadata field")
        key = found.group()
        if key in seen:
            scanner.fail(f"metadata field {key!r} is given twice", found.start())
        seen.add(key)
        scanner.expect("=")
        if key in _TEXT_FIELDS:
            texts[key] = scanner.string()
        elif key == "source_line":
            source_line = _int32(scanner)
        elif (pattern := _VERBATIM_FIELDS.get(key)) is not None:
            what = _EXPECTED.get(pattern, "a list of profile types, 0 to 3")
            extra.append((key, scanner.need(pattern, what).group()))
        else:
            scanner.fail(f"unknown metadata field {key!r}", found.start())
    return OpMetadata(
        texts.get("op_type", ""),
        texts.get("op_name", ""),
        texts.get("source_file", ""),
        source_line,
        tuple(extra),
    )


def _int32(scanner: Scanner) -> int:
    start = scanner.skip_space()
    number = scanner.integer()
    if not -(2**31) <= number < 2**31:
        scanner.fail(f"expected a line number of 32 bits, found {number}", start)
    return number


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
    """Read ``{key="value",other={verbatim}}``. Quoted values lose their quotes, braced ones keep their braces."""
    pairs: list[tuple[str, str]] = []
    for _ in scanner.items():
        key = _read_key(scanner)
        scanner.expect("=")
        pairs.append((key, read_text_or_braces(scanner)))
    return tuple(pairs)


def _read_key(scanner: Scanner) -> str:
    """Read a key: a word, or a quoted text, which XLA's parser rejects but protos may contain."""
    if (found := scanner.match(STRING)) is not None:
        return unescape(found.group()[1:-1])
    return scanner.need(_KEY, "an attribute name").group()


def read_text_or_braces(scanner: Scanner) -> str:
    """Read a string without its quotes, or a braced text with its braces."""
    if scanner.peek("{"):
        start, end = scanner.balanced()
        return scanner.text[start:end]
    return scanner.string("a string or braces")


def format_frontend_attributes(pairs: tuple[tuple[str, str], ...]) -> str:
    return (
        "{"
        + ",".join(f"{_format_key(key)}={format_text_or_braces(value)}" for key, value in pairs)
        + "}"
    )


def _format_key(key: str) -> str:
    return key if _KEY.fullmatch(key) else quote(key)


def format_text_or_braces(value: str) -> str:
    """Format a text as XLA prints it: raw if it lexes as a dictionary, else quoted."""
    return value if is_braced(value) else quote(value)


def is_braced(text: str) -> bool:
    """Return whether the text is one balanced brace group, which the reader reads verbatim.

    It must be one even if quotes follow: a quote in the text that lacks its partner would pair with one of them.
    """
    if not (text.startswith("{") and text.endswith("}")):
        return False
    scanner = Scanner.of(f'{text}"\'"')
    try:
        return scanner.balanced() == (0, len(text))
    except HloParseError:
        return False
