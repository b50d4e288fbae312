"""One line on a terminal that says how far long work is; nothing where standard error is no terminal."""

from __future__ import annotations

import sys
import time
from dataclasses import field

from spmd.lazy_dataclass import dataclass

#: Seconds for which work is not reported unless it is asked for at once.
_SHORT = 1.0


@dataclass
class TerminalLine:
    """A line that each `show` writes over, with the seconds since it was made. It appears after `delay` seconds."""

    delay: float = _SHORT
    start: float = field(default_factory=time.monotonic)
    shown: bool = False

    def show(self, text: str) -> None:
        """Write `text` over what was shown before, once the work takes longer than the delay."""
        seconds = time.monotonic() - self.start
        if sys.stderr.isatty() and seconds >= self.delay:
            self.shown = True
            sys.stderr.write(f"\r\x1b[K[{seconds:.0f} s] {text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self.shown:
            self.shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
