"""One line on a terminal that says how far long work is; nothing where standard error is no terminal."""

from __future__ import annotations

import sys
import time
from dataclasses import field

from spmd.lazy_dataclass import dataclass

#: Work that takes less than this many seconds is not reported.
_SHORT = 1.0


@dataclass
class TerminalLine:
    """A line that each `show` writes over, with the seconds since it was made."""

    start: float = field(default_factory=time.monotonic)
    shown: bool = False

    def show(self, text: str) -> None:
        """Write `text` over what was shown before, once the work takes longer than a second."""
        seconds = time.monotonic() - self.start
        if sys.stderr.isatty() and seconds > _SHORT:
            self.shown = True
            sys.stderr.write(f"\r\x1b[K[{seconds:.0f} s] {text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self.shown:
            self.shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
