"""Reader of the backend_config of a library call: JSON, field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.json_fields import read_json
from spmd.lazy_dataclass import dataclass

_MOST_BYTES = 1_000_000
_MOST_DIMENSIONS = 64


@dataclass(frozen=True)
class Settings:
    """Fields of the JSON object of ``call``. A field of the wrong type raises UnsupportedError."""

    call: HloInstruction
    fields: Mapping[str, Any]

    def number(self, name: str, default: float) -> float:
        found = self.fields.get(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise self.wrong(name)
        return float(found)

    def flag(self, name: str) -> bool:
        found = self.fields.get(name, False)
        if not isinstance(found, bool):
            raise self.wrong(name)
        return found

    def text(self, name: str, default: str) -> str:
        found = self.fields.get(name, default)
        if not isinstance(found, str):
            raise self.wrong(name)
        return found

    def dimensions(self, name: str) -> tuple[int, ...]:
        """Return a list of numbers, which may be written as strings or numbers."""
        found = self.fields.get(name, [])
        if not isinstance(found, list) or len(found) > _MOST_DIMENSIONS:
            raise self.wrong(name)
        if not all(str(d).isdecimal() and len(str(d)) < 4 for d in found):
            raise self.wrong(name)
        return tuple(int(d) for d in found)

    def inside(self, name: str) -> Settings:
        """Return the object in a field; an empty one if there is none."""
        found = self.fields.get(name, {})
        if not isinstance(found, dict):
            raise self.wrong(name)
        return Settings(self.call, found)

    def wrong(self, name: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.call!r}: {name}={self.fields.get(name)!r} in its backend_config is not known"
        )


def settings_of(call: HloInstruction) -> Settings:
    """Return the settings of ``call``, which may be quoted twice; empty if there are none."""
    text = call.annotations.backend_config or "{}"
    found = read_json(text.encode(), repr(call), "backend_config", _MOST_BYTES, UnsupportedError)
    if isinstance(found, str):
        found = read_json(
            found.encode(), repr(call), "backend_config", _MOST_BYTES, UnsupportedError
        )
    if not isinstance(found, dict):
        raise UnsupportedError(
            f"{call!r}: its backend_config is not an object: {json.dumps(found)[:80]}"
        )
    return Settings(call, found)
