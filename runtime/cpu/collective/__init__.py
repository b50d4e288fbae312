"""Collectives as native code: through memory that ranks share, and through messages between nodes."""
