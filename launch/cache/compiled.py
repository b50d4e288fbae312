"""Record of a program that was compiled, or loaded from the cache of compiled programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.executable import Executable


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    warning: text for standard error; "" for none.
    saved: the executable as bytes, if it comes from the cache or was stored there.
    cached: it was loaded from the cache.
    """

    executable: Executable
    warning: str
    saved: bytes | None = None
    cached: bool = False
