"""Collectives in two levels: within nodes, and between nodes."""
