"""Measured choices of library algorithms, and the file that stores them.

Keys name the GPU, the library's version and the shape. The file is untrusted input: its size and entries are bounded,
and the library validates an algorithm before it runs it.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

#: Limits of the file: bytes, entries, and characters of a key.
_MOST_BYTES, _MOST_ENTRIES, _MOST_KEY = 4 << 20, 16384, 400
#: Digits of a choice, which the file stores in hexadecimal, and their largest number.
_HEX = set("0123456789abcdef")
_MOST_LENGTH = 256


class Tuning:
    """Choices of algorithms by key. A choice is the library's representation in bytes, empty for its default algorithm.

    file: where choices are stored; None: they are not stored. measures: missing choices are measured. Otherwise only
    choices from ``file`` are used, so that all ranks of a job use the same algorithms.
    """

    def __init__(self, file: Path | None, *, measures: bool) -> None:
        self.measures = measures
        self._file, self._lock = file, threading.Lock()
        self._choices = {} if file is None else _read(file)

    def choice(self, key: str, measure: Callable[[], bytes]) -> bytes | None:
        """Return the choice for ``key``. If it is missing, call ``measure`` and store its result.

        Returns None if the choice is missing and ``measures`` is False. A lock serializes the devices of the process,
        so that all get the same choice.
        """
        with self._lock:
            if key not in self._choices and self.measures:
                self._keep(key, measure())
            return self._choices.get(key)

    def _keep(self, key: str, choice: bytes) -> None:
        """Store a choice, and write it to the file. Entries that other processes have added meanwhile are preserved."""
        self._choices[key] = choice
        if self._file is None:
            return
        self._choices = {**_read(self._file), **self._choices}
        if len(self._choices) <= _MOST_ENTRIES:
            _write(self._file, self._choices)


def _read(file: Path) -> dict[str, bytes]:
    """Return the valid entries of ``file``, or no entries if it is missing, too large or not a JSON object."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        found = json.loads(data) if len(data) <= _MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: bytes.fromhex(choice)
        for key, choice in list(found.items())[:_MOST_ENTRIES]
        if len(key) <= _MOST_KEY and isinstance(choice, str) and _is_hexadecimal(choice)
    }


def _is_hexadecimal(text: str) -> bool:
    return len(text) <= _MOST_LENGTH and len(text) % 2 == 0 and _HEX.issuperset(text)


def _write(file: Path, choices: dict[str, bytes]) -> None:
    """Replace ``file`` atomically. If that fails, for example for lack of permission, it stays as it is."""
    text = json.dumps({key: choice.hex() for key, choice in sorted(choices.items())}, indent=0)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
        Path(name).replace(file)
    except OSError:
        return
