"""Names from elsewhere made into names that a text can hold."""

from __future__ import annotations

import re

from spmd.text.shape_text import RESERVED

_NO_NAME = re.compile(r"[^A-Za-z0-9_.\-]|^[^A-Za-z_]", re.ASCII)


def sanitized(name: str) -> str:
    """``add:1`` becomes ``add_1``, ``f32`` ``_f32``, as in XLA (NameUniquer::GetSanitizedName); not for empty names."""
    clean = _NO_NAME.sub("_", name)
    return f"_{clean}" if clean in RESERVED else clean
