"""Collectives as native code: through shared memory, and through messages between nodes."""
