"""Analyses of modules: cost, trip counts, side effects. They do not change a module."""
