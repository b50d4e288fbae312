"""Shardings that a module states: annotations, manual regions, bindings of the entry's parameters and outputs."""
