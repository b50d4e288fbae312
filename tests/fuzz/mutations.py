"""Small damages to an input: tokens, numbers, spans, lines and bytes, in text and in protos."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TextMutation = Callable[[str, random.Random], str]

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[\w.\-]+")
#: Mutated inputs stay below this.
MAX_LENGTH = 300_000
NUMBERS = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "64",
    "65",
    "127",
    "1000000000",
    "2147483648",
    "4294967296",
]
NUMBERS += ["9223372036854775807", "9223372036854775808", "18446744073709551616", "9" * 40]
TOKENS = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    '"',
    "'",
    "/*",
    "*/",
    "//",
    ",",
    "=",
    "%",
    "<=",
    "T(",
    "ROOT ",
    "ENTRY ",
]
TOKENS += [
    "\n",
    " ",
    "mesh[",
    "f32[",
    "(f32[], f32[])",
    "token[]",
    ":",
    "#",
    "->",
    "constant(",
    "{...}",
    "\\",
    "?",
    "<=",
]
TOKENS += [
    "nan",
    "-inf",
    "nan(0x1)",
    "1e400",
    ".5",
    "replica_groups={}",
    "replica_groups=[2,4]<=[8]",
    "channel_id=1",
]
TOKENS += [
    "sharding={replicated}",
    "sharding={devices=[2]<=[2]}",
    "to_apply={",
    "b(f32[2])",
    "\0",
    "é",
    "\ud800",
    "\u2028",
]
TOKENS += [
    "HloModule m, num_partitions=2147483647",
    "is_scheduled=true",
    "dimensions={0}",
    "f32[2,<=3]",
    "pred[0]",
    "s4[3]",
]


def _insert_token(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(TOKENS) + text[at:]


def _delete_span(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.choice((1, 1, 2, 4, 16, 100)) :]


def _copy_span(text: str, rng: random.Random) -> str:
    source = rng.randrange(len(text) + 1)
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[source : source + rng.randint(1, 60)] + text[at:]


def _change_number(text: str, rng: random.Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    number = rng.choice(found)
    return text[: number.start()] + rng.choice(NUMBERS) + text[number.end() :]


def _small_number(text: str, rng: random.Random) -> str:
    """A number becomes one near it: sizes that no longer fit, dimensions that do not exist."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    number = rng.choice(found)
    if len(number.group()) > 18:
        return text
    value = max(0, int(number.group()) + rng.choice((-1, 1, 1, 2)))
    return text[: number.start()] + str(value) + text[number.end() :]


def _change_word(text: str, rng: random.Random) -> str:
    """One word becomes another of the same text: other operands, opcodes, attributes, types."""
    found = list(_WORD.finditer(text))
    if not found:
        return text
    word = rng.choice(found)
    alike = [w for w in found if w.group()[0].isdigit() == word.group()[0].isdigit()]
    other = rng.choice(alike)
    return text[: word.start()] + other.group() + text[word.end() :]


def _line_move(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.choice((0, 1, 1, 2))):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return "\n".join(lines)


def _truncate(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _repeat(text: str, rng: random.Random) -> str:
    """One span many times: deep nesting, long lists, long names."""
    at = rng.randrange(len(text) + 1)
    times = rng.choice((3, 30, 300, 3000))
    return text[:at] + text[at : at + rng.randint(1, 8)] * times + text[at:]


TEXT_MUTATIONS: tuple[TextMutation, ...] = (
    _insert_token,
    _delete_span,
    _copy_span,
    _change_number,
    _change_number,
    _small_number,
    _small_number,
    _small_number,
    _change_word,
    _change_word,
    _change_word,
    _line_move,
    _truncate,
    _repeat,
)


def mutate_text(text: str, rng: random.Random) -> bytes:
    """One to four damages; now and then also to the bytes of the UTF-8."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(TEXT_MUTATIONS)(text, rng)[:MAX_LENGTH]
    data = text.encode("utf-8", "surrogatepass")
    return mutate_bytes(data, rng) if rng.randrange(20) == 0 else data


_BYTES = [
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x08\x00",
    b"\xed\xa0\x80",
]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to three damages to bytes: flips, spans removed, copied, replaced by extreme integers, truncation."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        choice = rng.randrange(6)
        if choice == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif choice == 1:
            data = data[:at] + data[at + rng.choice((1, 1, 2, 8, 64)) :]
        elif choice == 2:
            source = rng.randrange(len(data) + 1)
            data = data[:at] + data[source : source + rng.randint(1, 60)] + data[at:]
        elif choice == 3:
            data = data[:at] + rng.choice(_BYTES) + data[at + rng.randrange(2) :]
        elif choice == 4:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif rng.randrange(4) == 0:
            data = data[:at]
    return data[:MAX_LENGTH]
