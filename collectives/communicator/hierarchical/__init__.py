"""Collectives in two levels: over shared memory within nodes, and by messages between nodes."""
