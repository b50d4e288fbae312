"""Transfers between a GPU and its host through pinned memory: inputs, outputs, scalars, and collectives of hosts."""
