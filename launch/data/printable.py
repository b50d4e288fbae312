"""Text that came from a file, as a terminal may show it: names in it could clear the screen, or hide what is there."""

from __future__ import annotations


def printable(text: str, keep: str = "\n\t") -> str:
    """Return ``text`` with unprintable characters escaped as Python does, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)


def printable_lines(lines: list[str]) -> str:
    """Join the lines, with control characters in them replaced."""
    return "\n".join(printable(line, keep="") for line in lines)
