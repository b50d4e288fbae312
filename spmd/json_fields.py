"""Reader of untrusted JSON, field by field: every value is checked and no field is ignored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

from spmd.errors import SpmdError

MAX_ENTRIES = 64
MAX_TEXT = 2_000

#: An escape that may be half of a surrogate pair, which cannot be encoded again.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")

Item = TypeVar("Item")


def read_fields(
    data: bytes, where: str, what: str, most: int, error: type[SpmdError]
) -> JsonFields:
    """Return the object in ``data``. Raises ``error``, naming ``where``, if it is no object or longer than ``most``
    bytes.

    where: the file. what: the kind of content, in a few words.
    """
    return JsonFields(read_json(data, where, what, most, error), where, error)


def read_json(data: bytes, where: str, what: str, most: int, error: type[SpmdError]) -> object:
    if len(data) > most:
        raise error(f"{where}: {len(data)} bytes, more than {most} for a {what}")
    try:
        text = data.decode(json.detect_encoding(data))
        found = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse)
        if _HALF.search(text):
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as reason:
        why = str(reason) or "nested too deeply"
        raise error(f"{where}: no {what} in JSON: {why}") from reason


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


class JsonFields:
    """JSON object whose fields are taken out one by one; the fields left at the end are unknown."""

    def __init__(self, found: object, where: str, error: type[SpmdError]) -> None:
        if not isinstance(found, dict):
            raise error(f"{where}: expected an object, found {shown(found)}")
        self.where = where
        self.error = error
        self._left = dict(found)

    def inside(self, found: object, name: str) -> JsonFields:
        """Return ``found``, which is at ``name`` of this object, as an object."""
        return JsonFields(found, f"{self.where}: {name}", self.error)

    def nested(self, name: str) -> JsonFields:
        return self.inside(self.pop(name), name)

    def pop(self, name: str) -> Any:
        if name not in self._left:
            raise self.error(f"{self.where}: field {name!r} is missing")
        return self._left.pop(name)

    def has(self, name: str) -> bool:
        return name in self._left

    def done(self) -> None:
        if self._left:
            raise self.error(f"{self.where}: unknown field {shown(sorted(self._left)[0])}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields that have not been read."""
        return tuple(self._left)

    def text(self, name: str) -> str:
        found = self.pop(name)
        if not isinstance(found, str) or not 0 < len(found) <= MAX_TEXT:
            raise self.error(
                f"{self.where}: {name} must be a string of 1 to {MAX_TEXT} characters, found {shown(found)}"
            )
        return found

    def number(self, name: str, bounds: tuple[float, float], default: float | None = None) -> float:
        """Return a number within ``bounds``; ``default``, if given, for a missing field."""
        if default is not None and not self.has(name):
            return default
        found = self.pop(name)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise self.error(f"{self.where}: {name} must be a number, found {shown(found)}")
        low, high = bounds
        # Compare before the conversion to float: an integer may be too large for one.
        if not low <= found <= high or not math.isfinite(found):
            raise self.error(
                f"{self.where}: {name} must be from {low:g} to {high:g}, found {shown(found)}"
            )
        return float(found)

    def integer(self, name: str, bounds: tuple[int, int], default: int | None = None) -> int:
        found = self.number(name, bounds, default)
        if found != int(found):
            raise self.error(f"{self.where}: {name} must be an integer, found {found:g}")
        return int(found)

    def numbers(self, name: str, bounds: tuple[float, float]) -> tuple[float, ...]:
        """Return a list of at least one number, each within ``bounds``."""
        found = self.pop(name)
        if not isinstance(found, list) or not 0 < len(found) <= MAX_ENTRIES:
            raise self.error(
                f"{self.where}: {name} must be a list of 1 to {MAX_ENTRIES} numbers, found {shown(found)}"
            )
        listed = self.inside({str(n): number for n, number in enumerate(found)}, name)
        return tuple(listed.number(str(n), bounds) for n in range(len(found)))

    def items(
        self, name: str, read: Callable[[JsonFields], Item], least: int = 0
    ) -> tuple[Item, ...]:
        found = self.pop(name)
        if not isinstance(found, list) or not least <= len(found) <= MAX_ENTRIES:
            raise self.error(
                f"{self.where}: {name} must be a list of {least} to {MAX_ENTRIES}, found {shown(found)}"
            )
        return tuple(read(self.inside(item, f"{name}[{n}]")) for n, item in enumerate(found))


def shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."
