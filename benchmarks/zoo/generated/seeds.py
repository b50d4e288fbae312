"""Names of random programs and their numbers of devices, which follow from the seed without JAX."""

from __future__ import annotations

from random import Random

#: Powers of two are drawn twice as often as the others.
DEVICES = (1, 2, 2, 4, 4, 8, 8, 3, 5, 6)
_PREFIX = "random_"


def name_of(seed: int) -> str:
    return f"{_PREFIX}{seed}"


def seed_of(name: str) -> int | None:
    """Number of a random program; None for a name of another program."""
    digits = name.removeprefix(_PREFIX)
    return int(digits) if digits != name and digits.isdigit() else None


def devices_of(seed: int) -> int:
    return Random(f"devices of {seed}").choice(DEVICES)
