"""Record of a program that was compiled, or loaded from the cache of compiled programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.executable import Executable


@dataclass(frozen=True)
class Compiled:
    """A compiled program. ``warning``: for standard error. ``saved``: the executable as bytes, if it comes from the
    cache or was stored there.
    """

    executable: Executable
    warning: str
    saved: bytes | None = None
    cached: bool = False
