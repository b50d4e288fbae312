"""Digests, which ranks compare instead of the data."""

from __future__ import annotations

import hashlib

_LENGTH = 16


def digest_of(data: bytes) -> str:
    """Return enough of the SHA-256 digest to detect accidental differences."""
    return full_digest_of(data)[:_LENGTH]


def full_digest_of(data: bytes) -> str:
    """Return a digest that differs for different data (SHA-256)."""
    return hashlib.sha256(data).hexdigest()
