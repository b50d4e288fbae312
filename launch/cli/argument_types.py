"""Types of argparse for numbers: what is no such number is refused in a few words."""

from __future__ import annotations

import argparse
import contextlib


def positive(text: str) -> int:
    """Return an integer of at least one."""
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def seed(text: str) -> int:
    """Return what NumPy takes to make numbers from."""
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below zero")
    return value


def tolerance(text: str) -> float:
    """Return zero or more; `inf` is allowed."""
    with contextlib.suppress(ValueError):
        if (value := float(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"{text} is no tolerance: a number from 0 on")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def positive_seconds(text: str) -> float:
    """Return a time above zero; `inf` is allowed."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} seconds are not above zero")
    return value
