"""Python's collector of reference cycles, held back while a program is made.

What is made stays. To look it through again and again takes a tenth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects between two looks at the youngest ones; Python's own number is some hundred.
_BETWEEN = 100_000


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Make garbage collections some hundred times rarer; cycles that passes leave are still collected. The context may
    be nested.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _BETWEEN:
        gc.set_threshold(_BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
