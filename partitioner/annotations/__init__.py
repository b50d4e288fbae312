"""Shardings that a module states: annotations, manual regions, the entry's boundary."""
