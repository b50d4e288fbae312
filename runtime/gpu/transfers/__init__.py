"""Transfers between a GPU and its host through pinned memory: entry arrays, scalars, and collectives between hosts."""
