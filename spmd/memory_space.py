"""Memory spaces that a layout's ``S(n)`` names; 0 is the device's own memory."""

from __future__ import annotations

#: The host's memory, as XLA numbers it.
HOST = 5
